// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// A process steps aside for another one, which packs its rotated files but not the one that is still written. One that
// steps back goes on at the path.
func TestStepAside(t *testing.T) {
	cfg := config(t)
	cfg.Compress = true
	if err := (*Writer)(nil).StepAside(t.Context()); err != nil {
		t.Error(err)
	}
	old := newFileWriter(t, cfg, &runtest.Transcript{})
	old.While(t.Context(), func() error {
		one(t, old, cfg.Path, "a")
		if _, err := New(cfg, options(t, &runtest.Transcript{})); !fault.Has(err, fault.CodeAudit) {
			t.Fatal(err)
		}
		for range 2 { // twice is once
			if err := old.StepAside(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := old.StepBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		one(t, old, cfg.Path, "b")
		if err := old.StepAside(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := newFileWriter(t, cfg, &runtest.Transcript{})
		next.While(t.Context(), func() error {
			one(t, next, cfg.Path, "d")
			runtest.Eventually(t, "the first rotated file is packed", func() bool {
				return slices.Contains(names(t, cfg.Path), "audit.jsonl.000001.gz")
			})
			one(t, old, cfg.Path+".000002", "c")
			return nil
		})
		return nil
	})
	if got := callers(t, cfg.Path); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("%v in %v", got, names(t, cfg.Path))
	}
}

// A file is not rotated again once it is aside, whatever its size and age.
func TestAsideIsNotRotated(t *testing.T) {
	cfg := config(t)
	cfg.MaxSize, cfg.MaxAge = 10, time.Nanosecond
	f, err := openFile(cfg, options(t, &runtest.Transcript{}).Log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.stepAside(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.Write([]byte("more than ten bytes\n")); err != nil {
			t.Fatal(err)
		}
		f.Rotate()
	}
	if _, err := os.Stat(cfg.Path); !f.Due().IsZero() || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", f.Due(), err)
	}
	if info, err := os.Stat(cfg.Path + ".000001"); err != nil || info.Size() != 60 {
		t.Errorf("%v, %v", info, err)
	}
}
