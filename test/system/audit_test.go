// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// audited reads the records that a hub has written, whole lines alone.
func audited(t *testing.T, file string, f audit.Filter) (out []audit.Record) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := audit.NewReader(file, bytes.NewReader(data))
	for {
		rec, err := r.Next()
		var torn *audit.Broken
		switch {
		case err == io.EOF || errors.As(err, &torn) && torn.Torn:
			return out
		case err != nil:
			t.Fatal(err)
		case f.Match(rec):
			out = append(out, rec)
		}
	}
}

// TestEveryWayLeavesARecord dials over each frontend what a rule allows, what one
// denies, and what a changed policy ends.
func TestEveryWayLeavesARecord(t *testing.T) {
	open, shut := runtest.Echo(t), runtest.Echo(t)
	f := policyFolder(t)
	f.put("p.yaml", fmt.Sprintf("- {name: open, allow: [%q]}\n- {name: shut, deny: [%q]}\n", open.Addr(), shut.Addr()))
	file := filepath.Join(runtest.Dir(t), "audit.jsonl")
	extra := f.extra() + fmt.Sprintf("audit: {path: %q}\n", file)
	h, _ := pair(t, hubSpec{extra: extra}, agentSpec{allow: []string{"127.0.0.0/8"}})
	frontends := map[string]string{"connect-unix": "connect", "connect-tls": "connect-tls", "konnectivity": "konnectivity", "admin": "admin"}
	for _, w := range h.ways("c1") {
		t.Run(w.name, func(t *testing.T) {
			mine := func(want audit.Filter) (out []audit.Record) {
				for _, r := range audited(t, file, want) {
					if r.Frontend == frontends[w.name] {
						out = append(out, r)
					}
				}
				return out
			}
			conn, err := w.dial(runtest.Within(t), open.Addr())
			if err != nil {
				t.Fatal(err)
			}
			mustEcho(t, conn, "twelve bytes")
			conn.Close()
			if conn, err := w.dial(runtest.Within(t), shut.Addr()); err == nil {
				conn.Close()
				t.Fatal("what a rule denies was dialled")
			}
			runtest.Eventually(t, "two records are there", func() bool { return len(mine(audit.Filter{})) == 2 })
			for _, r := range mine(audit.Filter{Denied: true}) {
				if r.Kind != audit.KindRefusal || r.Rule != "shut" || r.Code != "policy_denied" || r.Asked != shut.Addr() || r.Resolved != "" {
					t.Errorf("%+v", r)
				}
			}
			for _, r := range mine(audit.Filter{Rule: "open"}) {
				if r.Kind != audit.KindDial || r.Verdict != audit.Allow || r.Resolved != open.Addr() || r.Up != 12 || r.Down != 12 || r.Agent == "" ||
					r.Cluster != "c1" || r.Hub == "" || r.Caller == "" {
					t.Errorf("%+v", r)
				}
				byCertificate, byUser := w.name == "connect-tls", w.name == "connect-unix" || w.name == "konnectivity" || w.name == "admin"
				if (r.Serial != "" && r.Source != "") != byCertificate || (r.Peer != nil && int(r.Peer.UID) == os.Getuid()) != byUser {
					t.Errorf("who asked: %+v", r)
				}
			}
			if n, m := len(mine(audit.Filter{Denied: true})), len(mine(audit.Filter{Rule: "open"})); n != 1 || m != 1 {
				t.Errorf("%d denied, %d allowed: %+v", n, m, mine(audit.Filter{}))
			}
		})
	}

	conn, err := h.ways("c1")[0].dial(runtest.Within(t), open.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustEcho(t, conn, "before")
	f.put("p.yaml", "- {name: none, deny: [\"*\"]}\n")
	if err := h.reload(extra); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "the end of the stream is recorded", func() bool {
		return len(audited(t, file, audit.Filter{Code: "policy_denied", Rule: "none"})) == 1
	})
}
