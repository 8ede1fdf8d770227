// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// followed is a follower of a file and what it gave.
type followed struct {
	t    *testing.T
	path string
	stop context.CancelFunc
	done chan error

	mu       sync.Mutex
	got, bad []string
}

func follow(t *testing.T, path string, older []string) *followed {
	f := &followed{t: t, path: path, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	go func() {
		f.done <- Follow(ctx, path, older, Listener{
			Take:     func(r Record) error { f.mu.Lock(); defer f.mu.Unlock(); f.got = append(f.got, r.Caller); return nil },
			Broken:   func(b *Broken) error { f.mu.Lock(); defer f.mu.Unlock(); f.bad = append(f.bad, b.Error()); return nil },
			CaughtUp: func() error { return nil },
		})
	}()
	return f
}

func (f *followed) all() (got, bad []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got), slices.Clone(f.bad)
}

// expect looks after a poll.
func (f *followed) expect(bad []string, want ...string) {
	f.t.Helper()
	time.Sleep(2 * auditPoll)
	synctest.Wait()
	got, wrong := f.all()
	if !slices.Equal(got, want) || len(wrong) != len(bad) {
		f.t.Fatalf("%q came, not %q; told of %q", got, want, wrong)
	}
	for i, w := range wrong {
		if !strings.Contains(w, bad[i]) {
			f.t.Fatalf("%q is told, not %q", w, bad[i])
		}
	}
}

func (f *followed) write(callers ...string) {
	f.t.Helper()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	for _, c := range callers {
		if _, err := file.Write(Append(nil, dial(c))); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *followed) rotate() string {
	f.t.Helper()
	next, err := nextName(f.path)
	if err == nil {
		err = os.Rename(f.path, next)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return next
}

func (f *followed) pack(paths ...string) {
	f.t.Helper()
	for _, p := range paths {
		if err := pack(f.t.Context(), p); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *followed) remove(paths ...string) {
	f.t.Helper()
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestNoRotatedFileIsSkipped: whatever happens within one look of the follower.
func TestNoRotatedFileIsSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(f *followed)
		want string // the records after a
		bad  []string
	}{
		"one rotation": {func(f *followed) { f.write("b"); f.rotate(); f.write("c") }, "b c", nil},
		"three rotations": {func(f *followed) {
			for _, c := range []string{"b", "c", "d"} {
				f.write(c)
				f.rotate()
			}
			f.write("e")
		}, "b c d e", nil},
		"all packed at once": {func(f *followed) {
			f.write("b")
			one := f.rotate()
			f.write("c")
			two := f.rotate()
			f.write("d")
			f.pack(one, two)
		}, "b c d", nil},
		"the newer one packed": {func(f *followed) {
			f.rotate()
			f.write("c")
			f.pack(f.rotate())
			f.write("d")
		}, "c d", nil},
		"nothing stands at the path yet": {func(f *followed) {
			f.rotate()
			f.write("c")
			f.rotate()
			time.Sleep(3 * auditPoll)
			f.write("d")
		}, "c d", nil},
		"the one that was read is removed": {func(f *followed) {
			one := f.rotate()
			f.write("c")
			f.rotate()
			f.remove(one)
			f.write("d")
		}, "c d", nil},
		"the one that was read is packed and removed": {func(f *followed) {
			one := f.rotate()
			f.pack(one)
			f.write("c")
			f.rotate()
			f.remove(one + packed)
			f.write("d")
		}, "c d", nil},
		"unread ones are removed": {func(f *followed) {
			one := f.rotate()
			f.write("c")
			two := f.rotate()
			f.write("d")
			f.rotate()
			f.remove(one, two)
			f.write("e")
		}, "d e", []string{"1 rotated files were removed before they were read"}},
		"the folder is cleared": {func(f *followed) {
			f.rotate()
			time.Sleep(2 * auditPoll)
			f.write("c")
			time.Sleep(2 * auditPoll)
			all, err := Older(f.path)
			if err != nil {
				f.t.Fatal(err)
			}
			f.remove(all...)
			f.rotate() // number 1 again
			f.write("d")
			f.rotate()
			f.write("e")
		}, "c d e", nil},
		"the path is taken away":  {func(f *followed) { f.remove(f.path); f.write("c") }, "c", nil},
		"another program renames": {func(f *followed) { os.Rename(f.path, f.path+".old"); f.write("c") }, "c", nil},
		"it is emptied": {func(f *followed) {
			os.Truncate(f.path, 0)
			time.Sleep(2 * auditPoll)
			f.write("c")
		}, "c", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &followed{t: t, path: config(t).Path}
				f.write("older")
				f.rotate()
				f.write("a")
				older, err := Older(f.path)
				if err != nil || len(older) != 1 {
					t.Fatal(older, err)
				}
				f = follow(t, f.path, older)
				f.expect(nil, "a")
				c.do(f)
				f.expect(c.bad, append([]string{"a"}, strings.Fields(c.want)...)...)
				f.stop()
				if err := <-f.done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What was rotated after the older files were read, and before the follower began.
func TestAFollowerBeginsWhereTheOlderFilesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &followed{t: t, path: config(t).Path}
		f.write("older")
		f.rotate()
		older, err := Older(f.path)
		if err != nil {
			t.Fatal(err)
		}
		f.write("a")
		f.pack(f.rotate())
		f.write("b")
		f.rotate()
		f.write("c")
		f = follow(t, f.path, older)
		f.expect(nil, "a", "b", "c")
		f.stop()
		if err := <-f.done; err != nil {
			t.Error(err)
		}
	})
}

// TestAFastWriterIsFollowed: a Writer that rotates and packs as fast as it can, many
// times within one look. Each record comes once, and in order.
func TestAFastWriterIsFollowed(t *testing.T) {
	const all = 20_000
	for _, compress := range []bool{false, true} {
		cfg := config(t)
		cfg.MaxSize, cfg.Keep, cfg.Compress = 20<<10, auditKeptMost, compress
		var log runtest.Transcript
		w := newFileWriter(t, cfg, &log)
		f := follow(t, cfg.Path, nil)
		come := func() bool { got, bad := f.all(); return len(got) >= all || len(bad) > 0 }
		t.Cleanup(func() {
			if got, bad := f.all(); t.Failed() {
				older, _ := Older(cfg.Path)
				t.Logf("packed %v: %d came, %d rotations, told of %q; log: %s", compress, len(got), len(older), bad, &log)
			}
		})
		if err := w.While(t.Context(), func() error {
			for n := range all {
				w.Write(dial(fmt.Sprint(n)))
				if n%1000 == 999 { // below the bound of the queue
					runtest.Eventually(t, "the queue is empty", func() bool { return len(w.queue) == 0 })
				}
			}
			runtest.Eventually(t, "all have come", come) // not after the bound of the writer's end: the disk may be slow
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		f.stop()
		if err := <-f.done; err != nil {
			t.Error(err)
		}
		got, bad := f.all()
		for n := range got {
			if got[n] != fmt.Sprint(n) {
				t.Fatalf("packed %v: record %d is %s", compress, n, got[n])
			}
		}
		older, err := Older(cfg.Path)
		if err != nil || len(older) < 20 || len(bad) > 0 {
			t.Errorf("%d rotations, told of %q, %v", len(older), bad, err)
		}
	}
}
