// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// everything is the widest list of an agent; loopback needs a rule of its own.
func everything() []string { return []string{"0.0.0.0/0", "::/0", "127.0.0.0/8"} }

// wideRules allow as much as rules can that do not name what is special, and the
// loopback ports of some targets.
func wideRules(targets ...*runtest.Target) string {
	text := "- {name: wide, allow: [\"*\", 0.0.0.0/0, \"::/0\"]}\n"
	for i, to := range targets {
		text += fmt.Sprintf("- {name: t%d, allow: [%q]}\n", i, to.Addr())
	}
	return text
}

// refusedBy dials by every frontend; none of them may get through.
func refusedBy(t *testing.T, h *testHub, target string, codes ...fault.Code) {
	t.Helper()
	for i, w := range h.ways("c1") {
		conn, err := w.dial(runtest.Within(t), target)
		if err == nil {
			conn.Close()
			t.Errorf("%s: %q is open", w.name, target)
			continue
		}
		if i >= 2 { // only the answers of HTTP carry a status and a code as text
			continue
		}
		if r := asRefused(t, err); !containsCode(codes, r.code) {
			t.Errorf("%s: %q is refused as %s (%s), want one of %v", w.name, target, r.code, r.body, codes)
		}
	}
}

func containsCode(codes []fault.Code, c fault.Code) bool {
	for _, code := range codes {
		if code == c {
			return true
		}
	}
	return false
}

// TestADeniedTargetInEverySpelling: the hub and the agent allow everything but one
// port of loopback and one name; no way of writing them leads there.
func TestADeniedTargetInEverySpelling(t *testing.T) {
	shut := runtest.Echo(t)
	port := portOf(t, shut)
	f := policyFolder(t)
	f.put("c1.yaml", wideRules()+fmt.Sprintf(`
- {name: loopback, allow: [127.0.0.0/8, "::1", "[::7f00:1]:%[1]s", "[64:ff9b::7f00:1]:%[1]s", "[2002:7f00:1::]:%[1]s"]}
- {name: shut, deny: ["127.0.0.1:%[1]s"]}
- {name: names, deny: ["LocalHost.", "*.DB.example.COM."]}
`, port))
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: append(everything(), "::1",
		"::7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "localhost", "*.example.com")})
	for _, host := range []string{
		"127.0.0.1", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[::7f00:1]", "[::127.0.0.1]",
		"localhost", "LOCALHOST", "LocalHost.", "a.db.example.com", "A.DB.EXAMPLE.COM.", "a.b.Db.example.com",
	} {
		refusedBy(t, h, host+":"+port, fault.CodePolicyDenied)
	}
	for _, host := range []string{
		"127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "127.0.0.01", "127.0.0.1.", "[::1%lo]", "[::ffff:127.0.0.1%lo]",
		"localhost..", "lоcalhost", "１27.0.0.1",
	} {
		refusedBy(t, h, host+":"+port, fault.CodeRequest)
	}
	if n := shut.Accepted(); n != 0 {
		t.Errorf("a denied target saw %d connections", n)
	}
}

// TestAuthoritiesThatMeanSomethingElse: what some parser takes for loopback or metadata,
// and another for something harmless, is refused by its form, whatever the rules are.
func TestAuthoritiesThatMeanSomethingElse(t *testing.T) {
	shut := runtest.Echo(t)
	port := portOf(t, shut)
	f := policyFolder(t)
	f.put("c1.yaml", wideRules()+"- {name: loopback, allow: [127.0.0.0/8, \"::1\"]}\n")
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: append(everything(), "::1", "*.example", "localhost")})
	for _, target := range []string{
		"127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:" + strings.Repeat("9", 30), "127.0.0.1:+" + port, "127.0.0.1:-1", "127.0.0.1:0" + port, "127.0.0.1:0x50",
		"127.0.0.1:", "127.0.0.1", ":" + port, "127.0.0.1:" + port + ":" + port, "127.0.0.1:http", "127.0.0.1:８０",
		"user@127.0.0.1:" + port, "user:pass@127.0.0.1:" + port, "example.com@127.0.0.1:" + port, "127.0.0.1%2f:" + port, "127%2e0%2e0%2e1:" + port,
		"%6c%6f%63%61%6c%68%6f%73%74:" + port, "127.0.0.1%00.example:" + port, "127.0.0.1\\.example:" + port, "127.0.0.1/.example:" + port,
		"127.0.0.1#.example:" + port, "127.0.0.1?.example:" + port, "http://127.0.0.1:" + port, "//127.0.0.1:" + port, "/127.0.0.1:" + port,
		"127。0。0。1:" + port, "127．0．0．1:" + port, "127｡0｡0｡1:" + port, "①②⑦.0.0.1:" + port, "１２７.０.０.１:" + port, "١٢٧.0.0.1:" + port,
		"loc\u00adalhost:" + port, "localho\u017ft:" + port, "\u212aubernetes.example:" + port, "loca\u200blhost:" + port,
		"0x7f.1:" + port, "0177.1:" + port, "017700000001:" + port, "2130706433:" + port, "0x7f000001:" + port, "127.1:" + port, "127.0.1:" + port, "0:" + port,
		"127.0.0.1.:" + port, "127.0.0.1..:" + port, "127.0.0.256:" + port, "127.0.0.1.1:" + port, "0.0x7f.example.0x1:" + port, "a.example.1:" + port, "1:" + port,
		"[127.0.0.1]:" + port + "x", "[::1:" + port, "::1]:" + port, "[[::1]]:" + port, "[::1%25lo]:" + port, "[::1%lo]:" + port, "[fe80::1%eth0]:" + port,
		"[::ffff:127.1]:" + port, "[::ffff:0x7f.0.0.1]:" + port, "[::ffff:127.0.0.1%1]:" + port, "[1::2::3]:" + port, "[v1.::1]:" + port, "[]:" + port,
		"-a.example:" + port, "a-.example:" + port, "a..example:" + port, ".example:" + port, strings.Repeat("a", 64) + ".example:" + port, "*.example:" + port, "@l:" + port,
		strings.Repeat("a.", 127) + "example:" + port, "a b.example:" + port, "a\tb.example:" + port,
	} {
		for _, w := range h.ways("c1") {
			conn, err := w.dial(runtest.Within(t), target)
			if err == nil {
				conn.Close()
				t.Errorf("%s: %q is open", w.name, target)
			} else if fault.Has(err, fault.CodeDialDNS) || fault.Has(err, fault.CodeInternal) || strings.Contains(err.Error(), "dial_dns") {
				t.Errorf("%s: %q went further than its form: %v", w.name, target, err)
			}
		}
	}
	if n := shut.Accepted(); n != 0 {
		t.Errorf("the target saw %d connections", n)
	}
}

// TestANodeThatPointsAtTheControlPlane is CVE-2022-3294 end to end: a kubelet's
// address is metadata, loopback or a listener of the hub, and rules are wide.
func TestANodeThatPointsAtTheControlPlane(t *testing.T) {
	f := policyFolder(t)
	f.put("c1.yaml", wideRules())
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: []string{"0.0.0.0/0", "::/0", "*.example"}})
	for _, target := range []string{
		"169.254.169.254:80", "[fd00:ec2::254]:80", "[::ffff:a9fe:a9fe]:80", "[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::1]:80", "[::a9fe:a9fe]:80",
		"[2001:0:4136:e378:8000:63bf:5601:5601]:80", "127.0.0.1:10250", "[::1]:10250", "0.0.0.0:10250", "[::]:10250", "[64:ff9b::7f00:1]:10250",
		h.listen, strings.TrimPrefix(h.adminURL, "https://"), "localhost:10250", "LOCALHOST.:10250",
	} {
		refusedBy(t, h, target, fault.CodePolicyDenied)
	}
}

// TestARedirectIsNotFollowed is CVE-2020-8561: a webhook answers with a redirect to an
// address of the control plane. Nothing here speaks HTTP above the stream, so the
// caller sees the redirect itself, and what it names is refused like any other dial.
func TestARedirectIsNotFollowed(t *testing.T) {
	inner := runtest.Echo(t)
	const answer = "HTTP/1.1 302 Found\r\nLocation: http://%s/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	hook := runtest.Serve(t, func(c *net.TCPConn) {
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fmt.Fprintf(c, answer, inner.Addr())
		}
	})
	f := policyFolder(t)
	f.put("c1.yaml", wideRules(hook))
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: everything()})
	for _, w := range h.ways("c1") {
		conn, err := w.dial(runtest.Within(t), hook.Addr())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		io.WriteString(conn, "POST /hook HTTP/1.1\r\nHost: hook\r\nContent-Length: 0\r\n\r\n")
		got, err := io.ReadAll(conn)
		if want := fmt.Sprintf(answer, inner.Addr()); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want the answer as it was sent", w.name, got, err)
		}
		conn.Close()
	}
	refusedBy(t, h, inner.Addr(), fault.CodePolicyDenied)
	if n := inner.Accepted(); n != 0 {
		t.Errorf("what the redirect names saw %d connections", n)
	}
}

// TestAChangedPolicyIsTakenWithoutASignal changes, breaks and repairs a file of a
// running hub; a live stream ends with the rule that allowed it.
func TestAChangedPolicyIsTakenWithoutASignal(t *testing.T) {
	to := runtest.Echo(t)
	f := policyFolder(t)
	open := fmt.Sprintf("- {name: open, clusters: [c1], allow: [%q]}\n", to.Addr())
	f.put("c1.yaml", open)
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{allow: everything()})
	dial := func() (net.Conn, error) { return h.ways("c1")[0].dial(runtest.Within(t), to.Addr()) }
	live, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	mustEcho(t, live, "before")

	f.put("c1.yaml", "- {name: open, clusters: [c1], allow: [10.0.0.1/8]}\n")
	runtest.Eventually(t, "the status tells of the refusal", func() bool {
		p := h.Status().Policy
		return p != nil && p.Refusal != nil && p.Refusal.File == filepath.Join(f.dir, "c1.yaml") && p.Files == 1 && p.Rules == 1
	})
	mustEcho(t, live, "the last good content is in force")

	f.put("c1.yaml", "- {name: shut, clusters: [c1], deny: [\"*\"]}\n")
	if _, err := io.ReadAll(live); os.IsTimeout(err) {
		t.Error("the stream of a rule that is gone goes on")
	}
	_, err = dial()
	wantRefused(t, err, 403, fault.CodePolicyDenied)
	if p := h.Status().Policy; p == nil || p.Refusal != nil {
		t.Errorf("%+v", p)
	}
	f.put("c1.yaml", open)
	runtest.Eventually(t, "it is open again", func() bool {
		conn, err := dial()
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
