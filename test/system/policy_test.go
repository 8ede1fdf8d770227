// SPDX-License-Identifier: Apache-2.0

package system

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// folder is a folder of policies.
type folder struct {
	t   *testing.T
	dir string
}

func (f folder) extra() string { return fmt.Sprintf("policies: [%q]\n", f.dir) }

// put replaces a file of the folder as careful programs do.
func (f folder) put(name, rules string) {
	f.t.Helper()
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n" + rules
	next := filepath.Join(f.dir, ".next")
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, filepath.Join(f.dir, name))); err != nil {
		f.t.Fatal(err)
	}
}

func policyFolder(t *testing.T) folder {
	f := folder{t, filepath.Join(runtest.Dir(t), "policies")}
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheHubsPolicyDecides(t *testing.T) {
	open, shut := runtest.Echo(t), runtest.Echo(t)
	f := policyFolder(t)
	f.put("c1.yaml", fmt.Sprintf(`
- {name: open, clusters: [c1], allow: [%q]}
- {name: unix-only, clusters: [c1], callers: ["unix:c1/connect"], allow: [%q]}
- {name: shut, deny: [%q]}
`, open.Addr(), "127.0.0.0/8:"+portOf(t, shut), shut.Addr()))
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: []string{"0.0.0.0/0", "::/0", "127.0.0.0/8"}})
	for _, w := range h.ways("c1")[:2] {
		conn, err := w.dial(runtest.Within(t), open.Addr())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		mustEcho(t, conn, "what a rule allows")
		conn.Close()

		_, err = w.dial(runtest.Within(t), shut.Addr())
		if r := wantRefused(t, err, 403, fault.CodePolicyDenied); !strings.Contains(r.Error(), `"shut"`) {
			t.Errorf("%s: the refusal does not name its rule: %v", w.name, r)
		}
		_, err = w.dial(runtest.Within(t), "10.0.0.1:1")
		wantRefused(t, err, 403, fault.CodePolicyDenied)
		_, err = w.dial(runtest.Within(t), "169.254.169.254:80")
		wantRefused(t, err, 403, fault.CodePolicyDenied)
	}
	if n := shut.Accepted(); n != 0 {
		t.Errorf("a refused destination saw %d connections", n)
	}
}

// TestANameIsDecidedByItsAddress: the hub's rules look at addresses, the caller asks
// for a name that only the agent resolves.
func TestANameIsDecidedByItsAddress(t *testing.T) {
	open, shut := runtest.Echo(t), runtest.Echo(t)
	f := policyFolder(t)
	f.put("c1.yaml", fmt.Sprintf("- {name: open, allow: [%q]}\n", open.Addr()))
	name := func(to *runtest.Target) string { return net.JoinHostPort("localhost", portOf(t, to)) }
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: []string{"127.0.0.0/8"}})
	host, _, _ := net.SplitHostPort(open.Addr())
	if host != "127.0.0.1" {
		t.Logf("localhost is not %s: only the refusal is looked at", host)
	} else {
		conn, err := h.ways("c1")[0].dial(runtest.Within(t), name(open))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		mustEcho(t, conn, "a name with an address that is allowed")
	}
	_, err := h.ways("c1")[0].dial(runtest.Within(t), name(shut))
	wantRefused(t, err, 403, fault.CodePolicyDenied)
	if n := shut.Accepted(); n != 0 {
		t.Errorf("the agent dialled what the hub refuses: %d connections", n)
	}
}

func TestAChangedPolicyEndsOnlyWhatItRefuses(t *testing.T) {
	stays, goes := runtest.Echo(t), runtest.Echo(t)
	f := policyFolder(t)
	both := fmt.Sprintf("- {name: both, clusters: [c1], allow: [%q, %q]}\n", stays.Addr(), goes.Addr())
	one := fmt.Sprintf("- {name: one, clusters: [c1], allow: [%q]}\n", stays.Addr())
	f.put("c1.yaml", both)
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: []string{"127.0.0.0/8"}})
	dial := h.ways("c1")[0].dial
	live := map[string]net.Conn{}
	for _, to := range []string{stays.Addr(), goes.Addr()} {
		conn, err := dial(runtest.Within(t), to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		mustEcho(t, conn, "before")
		live[to] = conn
	}

	// A file with a mistake changes nothing, and the mistake is told with its place.
	f.put("c1.yaml", "- {name: one, clusters: [c1], allow: [10.0.0.1/8]}\n")
	if err := h.reload(f.extra()); err != nil || !strings.Contains(h.log.String(), "its last good content stays") || !strings.Contains(h.log.String(), "c1.yaml:4:") {
		t.Errorf("reload gave %v", err)
	}
	// Neither does the file of another cluster.
	f.put("c2.yaml", "- {name: none, clusters: [c2], deny: [\"*\"]}\n")
	if err := h.reload(f.extra()); err != nil { // the rest is in force, so nothing else may be said
		t.Errorf("reload gave %v", err)
	}
	for to, conn := range live {
		mustEcho(t, conn, "to "+to)
	}

	f.put("c1.yaml", one)
	if err := h.reload(f.extra()); err != nil {
		t.Fatal(err)
	}
	live[goes.Addr()].SetReadDeadline(time.Now().Add(runtest.Patience))
	if n, err := live[goes.Addr()].Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stream that is refused now goes on: %d, %v", n, err)
	}
	_, err := dial(runtest.Within(t), goes.Addr())
	wantRefused(t, err, 403, fault.CodePolicyDenied)
	mustEcho(t, live[stays.Addr()], "after the change")

	// With its file the last rule is gone, and so is what it allowed.
	if err := os.Remove(filepath.Join(f.dir, "c1.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := h.reload(f.extra()); err != nil {
		t.Fatal(err)
	}
	live[stays.Addr()].SetReadDeadline(time.Now().Add(runtest.Patience))
	if _, err := io.ReadAll(live[stays.Addr()]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the stream of a rule that is gone goes on")
	}
	// Without policies the agents' lists are the policy.
	if err := h.reload(""); err != nil {
		t.Fatal(err)
	}
	conn, err := dial(runtest.Within(t), goes.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustEcho(t, conn, "without a policy")
}

func TestAHubDoesNotStartWithABadPolicy(t *testing.T) {
	f := policyFolder(t)
	f.put("c1.yaml", "- {name: a, allow: []}\n")
	if _, err := newHub(t, hubSpec{extra: f.extra()}); !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), "c1.yaml:4:") {
		t.Errorf("%v", err)
	}
	if _, err := newHub(t, hubSpec{extra: "policies: [/no/such/folder]\n"}); !fault.Has(err, fault.CodeConfig) {
		t.Errorf("%v", err)
	}
}

// TestAReloadWithABadPolicyChangesNothing: a configuration that leads to policies
// which cannot be read, or which are wrong, is refused with all else that it says.
func TestAReloadWithABadPolicyChangesNothing(t *testing.T) {
	to := runtest.Echo(t)
	f, next := policyFolder(t), policyFolder(t)
	f.put("c1.yaml", fmt.Sprintf("- {name: open, allow: [%q]}\n", to.Addr()))
	next.put("c1.yaml", fmt.Sprintf("- {name: open, allow: [%q]}\n", to.Addr()))
	next.put("deny.yaml", "- {name: shut, deny: [10.0.0.1/8]}\n")
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: []string{"127.0.0.0/8"}})
	dial := h.ways("c1")[0].dial
	socket := filepath.Join(h.cfg.RunDir, "clusters/c9/connect.sock")
	const c9 = "clusters: [{name: c9, sockets: [{protocol: connect}]}]\n"
	for name, extra := range map[string]string{
		"a folder that there is not":  "policies: [/no/such/folder]\n",
		"a folder with a bad file":    next.extra(),
		"the old one and the bad one": fmt.Sprintf("policies: [%q, %q]\n", f.dir, next.dir),
	} {
		if err := h.reload(extra + c9); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("%s: reload gave %v", name, err)
		}
		if exists(socket) {
			t.Errorf("%s: a socket of the refused configuration is open", name)
		}
		// The next look at the policy still goes where the good configuration says.
		f.put("c1.yaml", fmt.Sprintf("- {name: open, allow: [%q]}\n", to.Addr()))
		if err := h.reload(f.extra()); err != nil {
			t.Errorf("%s: the good configuration again: %v", name, err)
		}
		conn, err := dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustEcho(t, conn, name)
		conn.Close()
	}
}
