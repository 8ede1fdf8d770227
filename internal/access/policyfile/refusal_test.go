// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestARefusedPolicySaysWhatIsInForce: of a file that was never good no last good
// content can stay. Each file says its own, with the place.
func TestARefusedPolicySaysWhatIsInForce(t *testing.T) {
	r := newWatchRig(t, 2)
	r.load()
	var log bytes.Buffer
	r.files.Log = slog.New(slog.NewTextHandler(&log, nil))
	for range 2 { // and what was new and bad stays so
		log.Reset()
		r.write("c0.yaml", "rules:\n- {name: r, clusters: [c0], allow: []}\n")
		r.write("new.yaml", "rules:\n- {name: r, clusters: [c9], allow: []}\n")
		err := r.files.Load()
		if !fault.Has(err, fault.CodeConfig) {
			t.Fatal(err)
		}
		r.files.LogRefused(err, "; the rest goes on")
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("the log says\n%s", &log)
		}
		for i, want := range [][2]string{
			{"c0.yaml", "a policy is refused; its last good content stays; the rest goes on"},
			{"new.yaml", "a policy is refused; it was never good, and nothing of it is in force; the rest goes on"},
		} {
			if !strings.Contains(lines[i], filepath.Join(r.dir, want[0])+":4:") || !strings.Contains(lines[i], want[1]) {
				t.Errorf("%s\nwant %q", lines[i], want)
			}
		}
	}
	for n := range 2 * limit.PoliciesTold {
		r.write(fmt.Sprintf("d%d.yaml", n), "rules: 1\n")
	}
	log.Reset()
	r.files.LogRefused(r.files.Load(), "")
	if n := strings.Count(log.String(), "\n"); n != limit.PoliciesTold+1 || !strings.Contains(log.String(), fmt.Sprintf("files=%d", limit.PoliciesTold+2)) {
		t.Errorf("%d lines: %s", n, &log)
	}
}
