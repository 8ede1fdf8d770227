// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// nobody is an address on which nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	return runtest.Address(9)
}

// silent is a listener whose queue is full: a SYN to it gets no answer.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(runtest.Within(t), "tcp", runtest.Address(7777))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	fillBacklog(t, ln.(*net.TCPListener))
	return ln.Addr().String()
}

func TestRefusalsCarryStatusCodeAndReason(t *testing.T) {
	h, a := pair(t, hubSpec{extra: "streams: {dialTimeout: 2s}"}, agentSpec{
		allow: []string{"127.0.0.0/8", "no-such-host.invalid", "0.0.0.0/0", "::/0"}})
	ways := h.ways("c1")
	for _, c := range []struct {
		name, target string
		status       int
		code         fault.Code
		says         string
	}{
		{"metadata", "169.254.169.254:80", 403, fault.CodePolicyDenied, "metadata"},
		{"metadata, IPv4-mapped", "[::ffff:169.254.169.254]:80", 403, fault.CodePolicyDenied, "metadata"},
		{"metadata, NAT64", "[64:ff9b::a9fe:a9fe]:80", 403, fault.CodePolicyDenied, "metadata"},
		{"IPv6 loopback", "[::1]:80", 403, fault.CodePolicyDenied, "loopback"},
		{"link-local", "169.254.7.7:80", 403, fault.CodePolicyDenied, "link-local"},
		{"the agent's own listener", a.health, 403, fault.CodePolicyDenied, "own listener"},
		{"nothing listens", nobody(t), 502, fault.CodeDialRefused, "refused"},
		{"no such name", "no-such-host.invalid:80", 502, fault.CodeDialDNS, "no-such-host.invalid"},
		{"no answer", silent(t), 504, fault.CodeDialTimeout, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, w := range ways {
				_, err := w.dial(runtest.Within(t), c.target)
				switch w.name {
				case "connect-unix", "connect-tls":
					r := wantRefused(t, err, c.status, c.code)
					if !strings.Contains(r.body, c.says) {
						t.Errorf("%s: %q does not say %q", w.name, r.body, c.says)
					}
				case "admin":
					wantFault(t, err, c.code)
				default:
					// The protocol has one text, which kube-apiserver hands on as it is.
					if err == nil || !strings.Contains(err.Error(), string(c.code)+": ") {
						t.Errorf("%s: %v", w.name, err)
					}
				}
			}
		})
	}
}

func TestLoopbackIsRefusedUnlessNamed(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{allow: []string{"0.0.0.0/0", "::/0"}})
	to := runtest.Echo(t)
	for _, target := range []string{to.Addr(), "localhost:" + portOf(t, to), "[::ffff:127.0.0.1]:" + portOf(t, to)} {
		_, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), target)
		wantRefused(t, err, 403, fault.CodePolicyDenied)
	}
	if n := to.Accepted(); n != 0 {
		t.Errorf("the target was dialled %d times", n)
	}
}

func TestAgentWithoutRulesDialsNothing(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{allow: []string{}})
	_, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), "10.1.2.3:80")
	if r := wantRefused(t, err, 403, fault.CodePolicyDenied); !strings.Contains(r.body, "--allow") {
		t.Errorf("%q names no way out", r.body)
	}
}

// A health port on all addresses is the agent's own on every loopback address.
func TestOwnListenerOnAllAddresses(t *testing.T) {
	h := startHub(t, hubSpec{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	startAgent(t, agentSpec{join: h.token("c1").Join, health: "0.0.0.0:" + port})
	socket := h.socket("c1", hub.ProtocolConnect)
	for _, target := range []string{"127.0.0.1:", "127.0.0.2:", "127.9.9.9:"} {
		_, err := dialConnect(runtest.Within(t), socket, target+port)
		wantRefused(t, err, 403, fault.CodePolicyDenied)
	}
}

// "No agent" says whether the cluster is known, who was seen last, why it left
// and what to do.
func TestNoAgentExplainsItself(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.token("c1").Join
	socket := h.socket("c1", hub.ProtocolConnect)
	_, err := dialConnect(runtest.Within(t), socket, "10.0.0.1:80")
	r := wantRefused(t, err, 503, fault.CodeNoAgent)
	for _, say := range []string{"c1", "registered", "since this hub started", "tombolo status c1", "tombolo token create --cluster c1"} {
		if !strings.Contains(r.body, say) {
			t.Errorf("never connected: %q does not say %q", r.body, say)
		}
	}

	a := startAgent(t, agentSpec{join: line})
	name := h.status("c1").Agents[0].ID
	a.stop()
	runtest.Eventually(t, "the agent is gone", func() bool { return h.connected("c1") == 0 })
	for _, w := range h.ways("c1") {
		_, err := w.dial(runtest.Within(t), "10.0.0.1:80")
		if err == nil {
			t.Fatalf("%s: a dial succeeded without an agent", w.name)
		}
		for _, say := range []string{"no_agent", name, "left", "ago"} {
			if text := err.Error(); !strings.Contains(text, say) {
				t.Errorf("%s: %q does not say %q", w.name, text, say)
			}
		}
	}
}

func TestUnknownClusterIsRefused(t *testing.T) {
	h := startHub(t, hubSpec{})
	_, err := h.admin.Stream(runtest.Within(t), "nope", "10.0.0.1:80")
	if f := wantFault(t, err, fault.CodeClusterUnknown); !strings.Contains(f.Next, "tombolo token create --cluster nope") {
		t.Errorf("no next step: %q", f.Next)
	}
	var any struct{}
	for _, c := range []struct{ method, path string }{
		{"GET", "/v1/status?cluster=nope"}, {"POST", "/v1/clusters/nope/ping"},
	} {
		wantFault(t, h.admin.Call(runtest.Within(t), c.method, c.path, nil, &any), fault.CodeClusterUnknown)
	}
	wantFault(t, h.admin.Call(runtest.Within(t), "POST", "/v1/clusters/nope/sockets", admin.SocketRequest{Protocol: hub.ProtocolConnect}, &any), fault.CodeClusterUnknown)
	wantFault(t, h.admin.Call(runtest.Within(t), "GET", "/v1/status?cluster=No_Such", nil, &any), fault.CodeRequest)
	if _, err := os.Stat(filepath.Join(h.dir, "run", "clusters", "nope")); err == nil {
		t.Error("the refused request left a folder")
	}
}

// The hub ends a dial although the caller would wait for ever and the agent
// says nothing: kube-apiserver's CONNECT has no deadline.
func TestDialIsBoundedByTheHub(t *testing.T) {
	h := startHub(t, hubSpec{extra: "streams: {dialTimeout: 1s}"})
	link, _ := h.rawSession(h.enrol(h.token("c1").Join), "mute")
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			if _, err := link.AcceptStream(context.Background()); err != nil {
				return // the dial request is never answered
			}
		}
	}()
	runtest.Eventually(t, "the session is live", func() bool { return h.connected("c1") == 1 })
	_, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), "10.0.0.1:80")
	if asRefused(t, err).code != fault.CodeDialTimeout && asRefused(t, err).code != fault.CodeSessionLost {
		t.Errorf("got %v", err)
	}
	if s := asRefused(t, err).status; s != http.StatusGatewayTimeout && s != http.StatusServiceUnavailable {
		t.Errorf("status %d", s)
	}
	link.Close()
	<-accepted
}

// A caller that goes away during the dial leaves nothing behind.
func TestCallerThatGivesUpDuringTheDial(t *testing.T) {
	h, _ := pair(t, hubSpec{extra: "streams: {dialTimeout: 3s}"}, agentSpec{})
	dead := silent(t)
	for _, w := range h.ways("c1") {
		ctx, cancel := context.WithCancel(runtest.Within(t))
		failed := make(chan error, 1)
		go func() {
			_, err := w.dial(ctx, dead)
			failed <- err
		}()
		runtest.Eventually(t, "the dial is under way on "+w.name, func() bool { return h.status("c1").Streams > 0 })
		cancel()
		if err := <-failed; err == nil {
			t.Errorf("%s: the dial succeeded", w.name)
		}
		runtest.Eventually(t, "nothing of it is left on "+w.name, func() bool { return h.status("c1").Streams == 0 })
	}
}
