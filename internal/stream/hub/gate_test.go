// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

const gateHead = "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nclusters:\n- name: c1\n"

// carried is a stream that an agent carries.
type carried struct {
	fakeStream
	excused *bool
}

func (carried) Agent() string { return "agent-1" }

func (c carried) Excuse() { *c.excused = true }

// gateRig is a gate whose dials give streams of this process.
type gateRig struct {
	*Gate
	t       *testing.T
	opened  []string
	targets []*net.TCPConn
	excused bool
}

func (r *gateRig) open(_ context.Context, d wire.Dial) (carrier.Stream, error) {
	if d.Address == "10.0.0.9:1" {
		return nil, fault.New(fault.CodeDialUnreachable, "it is not there")
	}
	near, far := tcpPair(r.t)
	r.opened, r.targets = append(r.opened, d.Address), append(r.targets, far)
	return carried{fakeStream{near}, &r.excused}, nil
}

func (r *gateRig) config(text string) Config {
	r.t.Helper()
	cfg, err := ParseGateConfig("k.yaml", []byte(gateHead+text))
	must(r.t, err)
	return cfg
}

// gated runs fn with a gate, and gives its records.
func gated(t *testing.T, text string, fn func(r *gateRig)) (out []audit.Record) {
	t.Helper()
	path := filepath.Join(runtest.Dir(t), "audit.jsonl")
	log, r := slog.New(slog.DiscardHandler), &gateRig{t: t}
	w, err := audit.New(audit.Config{Path: path, MaxSize: mib, MaxAge: time.Hour, Keep: 1}, audit.Options{Log: log,
		Reg: prometheus.NewRegistry()})
	must(t, err)
	r.Gate, err = NewGate(r.config(text), GateOptions{Options: Options{Log: log, Reg: prometheus.NewRegistry(), Audit: w},
		Open: r.open, By: "konnectivity",
		Agents:  func() []admin.AgentStatus { return []admin.AgentStatus{{ID: "agent-1", Connected: true}} },
		Sockets: func() []admin.Socket { return []admin.Socket{{Protocol: ProtocolKonnectivity, Path: "/k.sock"}} }})
	must(t, err)
	must(t, w.While(context.Background(), func() error { fn(r); return nil }))
	lines, err := os.ReadFile(path)
	must(t, err)
	for line := range strings.Lines(string(lines)) {
		var rec audit.Record
		must(t, json.Unmarshal([]byte(line), &rec))
		out = append(out, rec)
	}
	return out
}

func (r *gateRig) dial(address, name string) (carrier.Stream, error) {
	return r.Dial(r.t.Context(), wire.Dial{Network: wire.NetworkTCP, Address: address}, ProtocolKonnectivity, name)
}

// gatePolicy writes a policy that allows ranges, and gives its section.
func gatePolicy(t *testing.T, file string, ranges ...string) string {
	t.Helper()
	must(t, os.WriteFile(file, []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n- {name: nodes, allow: ["+
		strings.Join(ranges, ", ")+"]}\n"), 0o600))
	return fmt.Sprintf("policies: [%s]\n", file)
}

// TestGateWithoutAPolicy lets everything through that there is, names too.
func TestGateWithoutAPolicy(t *testing.T) {
	out := gated(t, "", func(r *gateRig) {
		for _, address := range []string{"node-1:10250", "127.0.0.1:80", "10.0.0.1:443"} {
			s, err := r.dial(address, "")
			must(t, err)
			must(t, s.Close())
		}
		if _, err := r.dial("10.0.0.9:1", ""); !fault.Has(err, fault.CodeDialUnreachable) {
			t.Error(err)
		}
		if _, err := r.dial("nothing", ""); !fault.Has(err, fault.CodeRequest) {
			t.Error(err)
		}
	})
	if len(out) != 5 || out[0].Asked != "node-1:10250" || out[0].Verdict != "" || out[0].Agent != "agent-1" ||
		out[0].Backend != "konnectivity" || out[0].Caller != "unix:c1/konnectivity" || out[0].Code != "ok" ||
		out[3].Code != "dial_unreachable" || out[3].Kind != audit.KindDial || out[4].Kind != audit.KindRefusal {
		t.Errorf("%+v", out)
	}
}

// TestGateJudges asks the policy, which a name does not get around.
func TestGateJudges(t *testing.T) {
	text := gatePolicy(t, filepath.Join(runtest.Dir(t), "p.yaml"), "10.0.0.0/8", "169.0.0.0/8")
	out := gated(t, text, func(r *gateRig) {
		s, err := r.dial("10.0.0.1:10250", "kube-apiserver")
		must(t, err)
		must(t, s.Close())
		for _, address := range []string{"192.0.2.1:443", "10.0.0.1.example:443", "169.254.169.254:80"} {
			if _, err := r.dial(address, ""); !fault.Has(err, fault.CodePolicyDenied) {
				t.Errorf("%s: %v", address, err)
			}
		}
		if len(r.opened) != 1 {
			t.Errorf("%q were dialled", r.opened)
		}
	})
	if len(out) != 4 || out[0].Verdict != audit.Allow || out[0].Rule != "nodes" || out[0].Caller != "tls:kube-apiserver@c1/konnectivity" ||
		out[1].Verdict != audit.Deny || out[2].Code != "policy_denied" {
		t.Errorf("%+v", out)
	}
}

// TestGateExplains says what TestGateJudges does.
func TestGateExplains(t *testing.T) {
	gated(t, gatePolicy(t, filepath.Join(runtest.Dir(t), "p.yaml"), "10.0.0.0/8"), func(r *gateRig) {
		for target, want := range map[string]string{"10.0.0.1:1": "allowed", "192.0.2.1:1": "denied", "node-1:1": "denied"} {
			w := httptest.NewRecorder()
			r.handler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/clusters/c1/explain?as=x&target="+target, nil))
			var out admin.Explanation
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Verdict != want || len(out.Hops) != 1 {
				t.Errorf("%s: %v %s", target, err, w.Body)
			}
		}
	})
}

// TestGateBounds bounds each caller alone, and its connections.
func TestGateBounds(t *testing.T) {
	gated(t, "limits: {caller: {streams: 1, sessions: 1}}\n", func(r *gateRig) {
		s, err := r.dial("10.0.0.1:1", "a")
		must(t, err)
		if _, err := r.dial("10.0.0.1:1", "a"); !fault.Has(err, fault.CodeLimit) {
			t.Errorf("a second stream: %v", err)
		}
		other, err := r.dial("10.0.0.1:1", "b")
		must(t, err)
		must(t, errors.Join(s.Close(), other.Close()))
		must(t, r.Reload(r.config("limits: {caller: {streams: 2}}\n")))
		for range 2 {
			_, err := r.dial("10.0.0.1:1", "a")
			must(t, err)
		}
		path := filepath.Join(runtest.Dir(t), "s")
		inner, err := net.Listen("unix", path)
		must(t, err)
		must(t, r.Reload(r.config("limits: {caller: {sessions: 1}}\n")))
		ln := r.Listener(inner, ProtocolConnect, func(net.Conn) string { return "" })
		defer ln.Close()
		for range 2 {
			conn, err := net.Dial("unix", path)
			must(t, err)
			defer conn.Close()
		}
		first, err := ln.Accept()
		must(t, err)
		if half, ok := first.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			t.Error("it has no half-close")
		}
		accepted := make(chan error)
		go func() { _, err := ln.Accept(); accepted <- err }()
		first.Close()
		ln.Close()
		<-accepted
	})
}

// TestGateCountsConnectionsOfEachCaller refuses the second connection of a caller, and none of another one.
func TestGateCountsConnectionsOfEachCaller(t *testing.T) {
	out := gated(t, "limits: {caller: {sessions: 1}}\n", func(r *gateRig) {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		must(t, inner.(*net.TCPListener).SetDeadline(time.Now().Add(runtest.Patience)))
		names := map[string]string{} // by the caller's address
		ln := r.Listener(inner, ProtocolConnect, func(conn net.Conn) string { return names[conn.RemoteAddr().String()] })
		defer ln.Close()
		dial := func(name string) {
			conn, err := net.Dial("tcp", inner.Addr().String())
			must(t, err)
			t.Cleanup(func() { conn.Close() })
			names[conn.LocalAddr().String()] = name
		}
		accepted := func(name string) net.Conn {
			conn, err := ln.Accept()
			must(t, err)
			if got := names[conn.RemoteAddr().String()]; got != name {
				t.Errorf("the connection is that of %s, not of %s", got, name)
			}
			return conn
		}
		dial("a")
		first := accepted("a")
		dial("a")
		dial("b")
		accepted("b")
		must(t, first.Close())
		dial("a")
		accepted("a")
	})
	if len(out) != 1 || out[0].Kind != audit.KindRefusal || out[0].Code != string(fault.CodeLimit) ||
		out[0].Caller != "tls:a@c1/connect" || out[0].Source != "127.0.0.1" {
		t.Errorf("%+v", out)
	}
}

// TestGateReload ends a stream that a changed policy refuses, and keeps what was there when the next is bad.
func TestGateReload(t *testing.T) {
	file := filepath.Join(runtest.Dir(t), "p.yaml")
	text := gatePolicy(t, file, "10.0.0.0/8")
	out := gated(t, text, func(r *gateRig) {
		s, err := r.dial("10.0.0.1:1", "")
		must(t, err)
		must(t, os.WriteFile(file, []byte("nonsense"), 0o600))
		must(t, r.Reload(r.config(text)))
		if _, err := r.dial("10.0.0.2:1", ""); err != nil {
			t.Errorf("the last good policy is not in force: %v", err)
		}
		if err := r.Reload(r.config("policies: [/missing]\n")); err == nil {
			t.Error("a policy that is missing is taken")
		}
		gatePolicy(t, file, "10.0.0.2/32")
		must(t, r.Reload(r.config(text)))
		if _, err := s.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("the stream lives: %v", err)
		}
		s.Close()
	})
	if len(out) == 0 || out[0].Asked != "10.0.0.1:1" || out[0].Code != "policy_denied" {
		t.Errorf("%+v", out)
	}
}

// TestGateNotes keeps in the record what is said while a stream lives, the newest of each key.
func TestGateNotes(t *testing.T) {
	out := gated(t, "", func(r *gateRig) {
		s, err := r.Dial(t.Context(), wire.Dial{Network: wire.NetworkTCP, Address: "10.0.0.1:1",
			Metadata: []reqmeta.Pair{{Key: "user", Value: "alice"}, {Key: "step", Value: "0"}}}, ProtocolKonnectivity, "")
		must(t, err)
		to := s.(interface{ Note([]reqmeta.Pair) error })
		must(t, to.Note([]reqmeta.Pair{{Key: "step", Value: "1"}, {Key: "last", Value: "x"}}))
		if to.Note([]reqmeta.Pair{{Key: "a b", Value: "1"}}) == nil {
			t.Error("a key with a space is taken")
		}
		s.(interface{ Excuse() }).Excuse()
		if !r.excused {
			t.Error("the agent does not learn that its caller takes no more")
		}
		must(t, s.Close())
	})
	if len(out) != 1 || out[0].Metadata.Get("user") != "alice" || out[0].Metadata.Get("step") != "1" || out[0].Metadata.Get("last") != "x" {
		t.Errorf("%+v", out)
	}
}

func TestGateStatus(t *testing.T) {
	gated(t, "", func(r *gateRig) {
		_, err := r.dial("10.0.0.1:1", "")
		must(t, err)
		ask := func(path string) (st admin.Status, code int) {
			w := httptest.NewRecorder()
			r.handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			json.Unmarshal(w.Body.Bytes(), &st)
			return st, w.Code
		}
		st, code := ask("/v1/status")
		if code != 200 || len(st.Clusters) != 1 || st.Clusters[0].Streams != 1 || st.Clusters[0].Agents[0].ID != "agent-1" ||
			st.Clusters[0].Sockets[0].Path != "/k.sock" || st.Clusters[0].Limits != nil || st.Hub.Memory == nil {
			t.Errorf("%d %+v", code, st)
		}
		if st, _ := ask("/v1/status?cluster=c1"); len(st.Clusters) != 1 || len(st.Clusters[0].Limits) == 0 {
			t.Errorf("%+v", st)
		}
		if _, code := ask("/v1/status?cluster=c2"); code != 404 {
			t.Errorf("another cluster: %d", code)
		}
		if _, code := ask("/v1/tokens"); code != 404 {
			t.Errorf("tokens: %d", code)
		}
	})
}

// TestGateConfigRefuses says where what has no meaning stands.
func TestGateConfigRefuses(t *testing.T) {
	const two = "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n"
	for text, want := range map[string]string{
		two: "clusters: 0 clusters",
		two + "clusters: [{name: a}, {name: b}]\n":                      "k.yaml:3:11: clusters: 2 clusters",
		two + "clusters: [{name: A}]\n":                                 "k.yaml:3:19: clusters[0].name",
		two + "clusters: [{name: a, sockets: [{protocol: connect}]}]\n": "k.yaml:3:31: clusters[0].sockets: it has no meaning",
		two + "clusters: [{name: a, limits: {agent: {streams: 1}}}]\n":  "clusters[0].limits.agent: it has no meaning",
		gateHead + "listen: :1\n":                                       "k.yaml:5:9: listen: it has no meaning",
		gateHead + "wireguard:\n":                                       "wireguard: it has no meaning",
		gateHead + "admin:\n  pprof: true\n":                            "k.yaml:6:3: admin: it has no meaning",
		gateHead + "streams: {dialTimeout: 1s}\n":                       "streams: it has no meaning",
		gateHead + "limits: {relay: {nodes: 1}}\n":                      "limits.relay: it has no meaning",
		gateHead + "limits: {cluster: {sessions: 1}}\n":                 "limits.cluster.sessions: it has no meaning",
		gateHead + "policy: [x]\n":                                      "policy: unknown key",
		gateHead + "policies:\n":                                        "the list is empty",
		"apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n":         `kind: "HubConfig" is expected`,
		"": "the file is empty",
	} {
		if _, err := ParseGateConfig("k.yaml", []byte(text)); err == nil || !strings.Contains(fault.From(err).Explain(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
	for _, page := range []string{"reference/konnectivity.md", "howto/from-konnectivity.md", "decisions/0043-a-hubs-gate-in-front-of-konnectivity.md"} {
		text, err := os.ReadFile(filepath.Join("../../../docs", page))
		must(t, err)
		_, example, found := strings.Cut(string(text), "```yaml\napiVersion: tombolo.dev/v1alpha1\n")
		example, _, _ = strings.Cut(example, "```")
		if _, err := ParseGateConfig(page, []byte("apiVersion: tombolo.dev/v1alpha1\n"+example)); err != nil || !found {
			t.Errorf("the example: %v", err)
		}
	}
	if _, err := ParseGateConfig("k.yaml", []byte(gateHead+"limits: {cluster: {unreadBytes: 1MiB}, caller: {unreadBytes: 1MiB}}\n")); err != nil {
		t.Errorf("unreadBytes: %v", err)
	}
	cfg, err := ParseGateConfig("k.yaml", []byte(gateHead))
	if err != nil || cfg.RunDir != "" {
		t.Errorf("run directory %q, %v", cfg.RunDir, err)
	}
}
