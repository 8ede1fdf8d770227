// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh"
)

// meshNodeOf is an admin socket that answers as a node of the mesh, and keeps what it
// was asked.
type meshNodeOf struct {
	path string

	mu    sync.Mutex
	asked []string
}

func (n *meshNodeOf) requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.asked)
}

func startMeshNode(t *testing.T, answers map[string]any) *meshNodeOf {
	t.Helper()
	n := &meshNodeOf{path: filepath.Join(runtest.Dir(t), "mesh.sock")}
	ln, err := net.Listen("unix", n.path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.asked = append(n.asked, r.Method+" "+r.URL.String())
		n.mu.Unlock()
		switch v := answers[r.Method+" "+r.URL.Path].(type) {
		case *fault.Fault:
			w.WriteHeader(admin.HTTPStatus(fault.ClassOf(v.Code)))
			json.NewEncoder(w).Encode(admin.BodyOf(v))
		default:
			json.NewEncoder(w).Encode(v)
		}
	})}
	served := make(chan struct{})
	go func() { defer close(served); srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close(); <-served })
	t.Setenv(meshSocket, n.path)
	return n
}

func metaOf(kind string) admin.Meta { return admin.Meta{APIVersion: v1alpha1.Version, Kind: kind} }

func meshStatusOf(now time.Time) mesh.Status {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	return mesh.Status{
		Meta: metaOf(mesh.KindStatus), Version: "v1", Since: now.Add(-90 * time.Second), Node: "a", ID: "id-a", Cluster: "c", Secrets: []string{"t1-x"},
		PublicKey: "KEY", Pin: "PIN", Link: "tombolo0", MTU: 1420, Engine: "userspace", EngineWhy: "mesh.engine says so", Overlay6: addr("fd00::a"), Overlay4: addr("100.112.0.1"), Port: 51820,
		InForce: true, Endpoints: []mesh.Endpoint{{At: netip.MustParseAddrPort("192.0.2.1:51820"), Kind: "own"}}, Offloads: []mesh.Offload{},
		Peers: []mesh.Peer{
			{ID: "id-b", Node: "b", PublicKey: "KEYB", Overlay6: addr("fd00::b"), Overlay4: addr("100.112.0.2"), Ranges: []netip.Prefix{prefix("10.1.0.0/16")},
				State: "direct", Path: "192.0.2.2:51820", Since: now.Add(-time.Hour), RTT: 1.25, Handshake: now.Add(-10 * time.Second), Sent: 1500, Received: 2_000_000, Probes: true,
				Candidates: []mesh.Candidate{
					{At: "192.0.2.2:51820", Kind: "own", Near: true, Sent: 3, Answers: 3, RTT: 1.25},
					{At: "relay h1", Sent: 1, Why: "a direct path is better"},
				}},
			{ID: "id-c", Node: "c", Overlay6: addr("fd00::c"), State: "relayed", Path: "relay h1", Since: now.Add(-5 * time.Second), RTT: 40, Why: "no candidate answers"},
			{ID: "id-d", Node: "d", State: "down", Why: "nothing leads there"},
			{ID: "id-e", Node: "e", Overlay4: addr("100.112.0.5"), State: "idle", Stale: true},
		},
	}
}

// TestMeshStatusText is what people see, line by line.
func TestMeshStatusText(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const head = `node a v1, running for 1m30s, link tombolo0 (mtu 1420), UDP port 51820
address fd00::a and 100.112.0.1, key KEY, pin PIN
engine userspace: mesh.engine says so
`
	const table = `
PEER       ADDRESS      STATE    BY               FOR   RTT    HANDSHAKE  SENT   RECEIVED  WHY
b          100.112.0.2  direct   192.0.2.2:51820  1h0m  1.2ms  10s        1.5kB  2.0MB     
c          fd00::c      relayed  relay h1         5s    40ms   -          0B     0B        no candidate answers
d          -            down     -                -     -      -          0B     0B        nothing leads there
e (stale)  100.112.0.5  idle     -                -     -      -          0B     0B        
`
	const reached = "reached at 192.0.2.1:51820 (own)\n"
	for name, c := range map[string]struct {
		change     func(*mesh.Status)
		candidates bool
		want       string
	}{
		"as it shall be": {func(*mesh.Status) {}, false, head + reached + table},
		"with candidates": {func(s *mesh.Status) { s.Peers = s.Peers[:1] }, true, head + reached + `
PEER  ADDRESS      STATE   BY               FOR   RTT    HANDSHAKE  SENT   RECEIVED  WHY
b     100.112.0.2  direct  192.0.2.2:51820  1h0m  1.2ms  10s        1.5kB  2.0MB     

b
  range            10.1.0.0/16
  192.0.2.2:51820  own, near  3 of 3 pings answered  1.2ms  
  relay h1         relay      0 of 1 ping answered   -      a direct path is better
`},
		"with IPsec": {func(s *mesh.Status) {
			a := mesh.SecurityAssociation{Local: netip.MustParseAddr("192.0.2.1"), Remote: netip.MustParseAddrPort("192.0.2.2:4500"),
				SPIIn: "0x10001", SPIOut: "0x20001", Cipher: "aes-256-gcm", Here: true, Sends: true, Since: now.Add(-time.Minute), Packets: [2]uint64{1, 7}}
			old := a
			old.SPIOut, old.Here, old.Sends, old.Ends = "", false, false, now.Add(9*time.Second)
			a.Raw = true
			s.Peers = s.Peers[:1]
			s.Peers[0].ESP = "without UDP: packets of protocol 50 pass both ways"
			s.Peers[0].SecurityAssociations, s.Peers[0].Candidates = []mesh.SecurityAssociation{old, a}, nil
		}, true, head + reached + `
PEER  ADDRESS      STATE   BY               FOR   RTT    HANDSHAKE  SENT   RECEIVED  WHY
b     100.112.0.2  direct  192.0.2.2:51820  1h0m  1.2ms  10s        1.5kB  2.0MB     

b
  range                              10.1.0.0/16
  esp                                without UDP: packets of protocol 50 pass both ways
  ipsec 192.0.2.1 to 192.0.2.2:4500  aes-256-gcm  SPI 0x10001 in, none out, receives, and goes in 9s, begun there 1m0s ago, 1 packet sent, 7 received
  ipsec 192.0.2.1 to 192.0.2.2       aes-256-gcm  SPI 0x10001 in, 0x20001 out, sends and receives, begun here 1m0s ago, 1 packet sent, 7 received
`},
		"WireGuard beside IPsec": {func(s *mesh.Status) {
			s.Engine, s.Beside, s.Peers = "ipsec", &mesh.Beside{Engine: "wireguard", Link: "tombolo0w", Port: 51820, Peers: 2}, s.Peers[:3]
			for i := range s.Peers {
				s.Peers[i].Engine = "wireguard"
			}
			s.Peers[0].EngineWhy, s.Peers[2].EngineWhy = "it does not run ipsec", "it does not run ipsec"
		}, false, strings.Replace(head, "engine userspace: mesh.engine says so\n", `engine ipsec: mesh.engine says so
engine wireguard beside it: for nodes without ipsec, 2 peers now, UDP port 51820
`, 1) + reached + `
PEER  ADDRESS      STATE    BY               FOR   RTT    HANDSHAKE  SENT   RECEIVED  WHY
b     100.112.0.2  direct   192.0.2.2:51820  1h0m  1.2ms  10s        1.5kB  2.0MB     by wireguard: it does not run ipsec
c     fd00::c      relayed  relay h1         5s    40ms   -          0B     0B        no candidate answers
d     -            down     -                -     -      -          0B     0B        by wireguard: it does not run ipsec; nothing leads there
`},
		"nobody": {func(s *mesh.Status) { s.Peers = nil }, false, head + reached + `
PEER  ADDRESS  STATE  BY  FOR  RTT  HANDSHAKE  SENT  RECEIVED  WHY
no peer is known under the secret t1-x: this node is the first one, or the others have another secret ('tombolo discovery secret show FILE' names one).
'tombolo discovery members' shows whom discovery knows, and which services it has asked
`},
		"nobody tells": {func(s *mesh.Status) { s.Peers, s.Sourceless, s.Warnings = nil, true, []string{"of no source"} }, false, head + reached + `
PEER  ADDRESS  STATE  BY  FOR  RTT  HANDSHAKE  SENT  RECEIVED  WHY
warning: of no source
`},
		"everything is wrong": {func(s *mesh.Status) {
			s.InForce, s.Tries, s.Fault = false, 16, admin.BodyOf(fault.New(fault.CodeClash, "table x").Whyf("it is somebody's"))
			s.Overlay4 = netip.Addr{}
			s.Endpoints = nil
			s.Hubs = []mesh.Hub{
				{Name: "h1", Address: "h1:443", Connected: true, Since: now.Add(-time.Minute), RTT: 12},
				{Name: "h2", Address: "h2:443", Fault: admin.BodyOf(fault.New(fault.CodeHubAway, "no hub").Whyf("refused"))},
				{Address: "h3:443"},
			}
			s.Router = &mesh.Router{Method: "nat-pmp", External: netip.MustParseAddrPort("203.0.113.9:4000")}
			s.Identity = &mesh.Identity{Fault: admin.BodyOf(fault.New(fault.CodeCertInvalid, "no certificate"))}
			s.Problems = []mesh.Problem{{Kind: "refused", Node: "b", Range: netip.MustParsePrefix("10.0.0.0/8"), Why: "it covers 10.0.0.1"}, {Kind: "self", Node: "c", Why: "it holds this node's key"}}
			s.Dropped = []mesh.Dropped{{Reason: "source", Packets: 1}, {Reason: "policy", Packets: 0}, {Reason: "router", Packets: 7}}
			s.Warnings = []string{"of something"}
		}, false, `node a v1, running for 1m30s, link tombolo0 (mtu 1420), UDP port 51820
address fd00::a, key KEY, pin PIN
engine userspace: mesh.engine says so
warning: the kernel is not as it shall be (tried 16 times): mesh_clash: table x: it is somebody's
relay h1 at h1:443 for 1m0s, round trip 12ms
relay h2 is away: hub_unreachable: no hub: refused
relay h3:443 is being connected to
`},
	} {
		st := meshStatusOf(now)
		c.change(&st)
		var b strings.Builder
		if err := printMesh(&b, st, c.candidates, now); err != nil {
			t.Fatal(err)
		}
		if name != "everything is wrong" {
			if b.String() != c.want {
				t.Errorf("%s: got\n%s\nwant\n%s", name, b.String(), c.want)
			}
			continue
		}
		c.want = strings.Replace(c.want, "relay h1 at", "port mapped by the router: 203.0.113.9:4000 (nat-pmp)\nrelay h1 at", 1) +
			"warning: certificate_invalid: no certificate\n" + table +
			"problem: refused: b 10.0.0.0/8: it covers 10.0.0.1\nproblem: self: c: it holds this node's key\n" +
			"dropped: source: 1 packet\ndropped: router: 7 packets\nwarning: of something\n"
		if b.String() != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, b.String(), c.want)
		}
	}
}

// TestMeshVerbs: each asks what it is to ask, prints JSON as it came, and text for people.
func TestMeshVerbs(t *testing.T) {
	now := time.Now()
	status := meshStatusOf(now)
	explanation := mesh.Explanation{Meta: metaOf(mesh.KindExplanation), Address: netip.MustParseAddr("10.1.2.3"), InMesh: true, Text: "line one\nline two\n"}
	ping := mesh.Ping{Meta: metaOf(mesh.KindPing), Seq: 1, Node: "b", To: netip.MustParseAddr("100.112.0.2"), RTT: 3, State: "direct", Path: "192.0.2.2:1", Trip: 1.5}
	netcheck := mesh.Netcheck{Meta: metaOf(mesh.KindNetcheck), Report: json.RawMessage(`{"udp":true}`), Text: "UDP passes\n"}
	rotated := mesh.Rotated{Meta: metaOf(mesh.KindRotation), PublicKey: "NEXT", Previous: "OLD", Peers: 1}
	n := startMeshNode(t, map[string]any{
		"GET /v1/status": status, "GET /v1/explain": explanation, "POST /v1/ping": ping, "GET /v1/netcheck": netcheck, "POST /v1/keys/rotate": rotated,
	})
	one := status
	one.Peers = status.Peers[2:3]
	for _, c := range []struct {
		line  string
		asks  string
		want  any
		texts []string
	}{
		{"mesh status", "GET /v1/status", status, []string{"node a v1", "b ", "relayed"}},
		{"mesh status d", "GET /v1/status", one, []string{"nothing leads there"}},
		{"mesh status id-d", "GET /v1/status", one, nil},
		{"mesh explain 10.1.2.3", "GET /v1/explain?ip=10.1.2.3", explanation, []string{"line one\nline two\n"}},
		{"mesh explain fd00::1", "GET /v1/explain?ip=fd00%3A%3A1", explanation, nil},
		{"mesh ping b -c 1", "POST /v1/ping?wait=5s&peer=b", ping, []string{"b (100.112.0.2): 3.0ms, direct by 192.0.2.2:1, path 1.5ms\n"}},
		{"mesh ping fd00::b&wait=1 -c 1", "POST /v1/ping?wait=5s&peer=fd00%3A%3Ab%26wait%3D1", ping, nil},
		{"mesh netcheck", "GET /v1/netcheck", netcheck, []string{"UDP passes\n"}},
		{"mesh keys rotate", "POST /v1/keys/rotate", rotated, []string{"the new key is NEXT; 1 peer will hear of it by discovery"}},
	} {
		before := len(n.requests())
		text := must(t, strings.Fields(c.line)...)
		for _, say := range c.texts {
			if !strings.Contains(text, say) {
				t.Errorf("%s does not say %q:\n%s", c.line, say, text)
			}
		}
		into := reflect.New(reflect.TypeOf(c.want))
		strictly(t, must(t, append(strings.Fields(c.line), "-o", "json")...), into.Interface())
		got, _ := json.Marshal(into.Interface())
		want, _ := json.Marshal(c.want)
		if string(got) != string(want) {
			t.Errorf("%s printed\n%s\nwant\n%s", c.line, got, want)
		}
		if asked := n.requests()[before:]; !slices.Equal(asked, []string{c.asks, c.asks}) {
			t.Errorf("%s has asked %q", c.line, asked)
		}
	}
	before := len(n.requests())
	wantExit(t, tombolo(t, "mesh", "status", "nobody"), 1, "not_found", "tombolo discovery members")
	wantExit(t, tombolo(t, "mesh", "status", "a"), 1, "it is this node itself")
	for _, line := range []string{"mesh explain 10.1.2.3/16", "mesh explain node-2", "mesh ping b -c -1", "mesh ping b --timeout 0s", "mesh status -o xml"} {
		wantExit(t, tombolo(t, strings.Fields(line)...), 2, "hint: ")
	}
	if asked := n.requests()[before:]; len(asked) > 3 {
		t.Errorf("for what cannot be a node was asked %q", asked)
	}
	// A flag counts before the environment.
	wantExit(t, tombolo(t, "mesh", "status", "--admin-socket", filepath.Join(runtest.Dir(t), "no.sock")), 3, "no.sock")
}

// TestMeshVerbsTellFaults: of the node, as it says them; and where none runs.
func TestMeshVerbsTellFaults(t *testing.T) {
	busy := fault.New(fault.CodeStateBusy, "the key is not rotated").Whyf("another rotation is under way").Hint("wait for it")
	away := fault.New(fault.CodeMeshAway, "the mesh is not up yet").Hint("try again in a moment")
	unknown := fault.New(fault.CodeNotFound, "no such peer").Hint("tombolo mesh status")
	startMeshNode(t, map[string]any{
		"POST /v1/keys/rotate": busy, "GET /v1/explain": away, "GET /v1/netcheck": away, "POST /v1/ping": unknown, "GET /v1/status": away,
	})
	wantExit(t, tombolo(t, "mesh", "keys", "rotate"), 1, "state_busy", "another rotation is under way", "hint: wait for it")
	wantExit(t, tombolo(t, "mesh", "explain", "10.0.0.1"), 3, "the mesh is not up yet")
	wantExit(t, tombolo(t, "mesh", "netcheck"), 3, "the mesh is not up yet")
	wantExit(t, tombolo(t, "mesh", "ping", "x"), 1, "no such peer")
	wantExit(t, tombolo(t, "mesh", "ping", "x", "--until-direct", "--timeout", "1m"), 1, "no such peer")
	t.Setenv(meshSocket, filepath.Join(runtest.Dir(t), "none.sock"))
	for _, line := range []string{"mesh status", "mesh explain 10.0.0.1", "mesh ping b", "mesh ping b --until-direct", "mesh netcheck", "mesh keys rotate"} {
		for _, format := range []string{"text", "json"} {
			o := tombolo(t, append(strings.Fields(line), "-o", format)...)
			wantExit(t, o, 3, "mesh_unreachable", "no 'tombolo mesh' answers at", "none.sock", "--admin-socket")
			if o.out != "" || strings.Contains(o.err, "tombolo hub") {
				t.Errorf("%s: %+v", line, o)
			}
		}
	}
	// This one can do without.
	wantExit(t, tombolo(t, "mesh", "netcheck"), 3, "name its file with --config")
	if o := tombolo(t, "mesh", "keys"); o.code != 0 || !strings.Contains(o.out, "rotate") {
		t.Errorf("%+v", o)
	}
}

// TestPinging plays a ping by a clock of its own.
func TestPinging(t *testing.T) {
	const most = 29500 * time.Millisecond // between two echoes
	direct := mesh.Ping{State: "direct", RTT: 1}
	relayed := mesh.Ping{State: "relayed", RTT: 40, Why: "no candidate answers"}
	silent := mesh.Ping{State: "down", Fault: admin.BodyOf(fault.New(fault.CodeDialTimeout, "no answer comes").Hint("look"))}
	refusal := fault.New(fault.CodeNotFound, "no such peer")
	many := func(p mesh.Ping, n int) []mesh.Ping { return slices.Repeat([]mesh.Ping{p}, n) }
	for name, c := range map[string]struct {
		pinging
		takes   time.Duration // of each echo
		cut     time.Duration // when it is broken off; 0: it is not
		answers []mesh.Ping   // the last one again and again
		err     error         // after them
		lines   int
		code    fault.Code
		says    string
		after   time.Duration
	}{
		"four":                         {pinging: pinging{count: 4}, answers: many(relayed, 1), lines: 4, after: 3 * time.Second},
		"one":                          {pinging: pinging{count: 1}, answers: many(direct, 1), lines: 1},
		"slow ones":                    {pinging: pinging{count: 3}, takes: 2 * time.Second, answers: many(relayed, 1), lines: 3, after: 6 * time.Second},
		"until the timeout":            {pinging: pinging{}, answers: many(relayed, 1), lines: 30, after: most},
		"some are lost":                {pinging: pinging{count: 3}, answers: []mesh.Ping{silent, relayed, silent}, lines: 3, after: 2 * time.Second},
		"all are lost":                 {pinging: pinging{count: 2}, answers: many(silent, 1), lines: 2, code: fault.CodeDialTimeout, says: "no answer comes", after: time.Second},
		"the first is not over":        {pinging: pinging{count: 2}, takes: time.Minute, answers: many(relayed, 1), code: fault.CodeDialTimeout, says: "no answer came", after: most},
		"a refusal":                    {pinging: pinging{count: 2}, err: refusal, code: fault.CodeNotFound, says: "no such peer"},
		"direct at once":               {pinging: pinging{untilDirect: true}, answers: many(direct, 1), lines: 1},
		"direct later":                 {pinging: pinging{untilDirect: true, count: 1}, answers: append(many(relayed, 5), direct), lines: 6, after: 5 * time.Second},
		"direct, but no echo":          {pinging: pinging{untilDirect: true}, answers: []mesh.Ping{{State: "direct", Fault: silent.Fault}, direct}, lines: 2, after: time.Second},
		"never direct":                 {pinging: pinging{untilDirect: true, count: 4}, answers: many(relayed, 1), lines: 30, code: fault.CodeDialTimeout, says: "after 29.5s it is relayed: no candidate answers", after: most},
		"never anything":               {pinging: pinging{untilDirect: true}, takes: time.Minute, answers: many(relayed, 1), code: fault.CodeDialTimeout, says: "it is not known", after: most},
		"never direct, and broken off": {pinging: pinging{untilDirect: true}, cut: 3400 * time.Millisecond, answers: many(relayed, 1), lines: 4, code: fault.CodeDialTimeout, says: "after 3.4s it is relayed", after: 3400 * time.Millisecond},
		"until direct, and it is gone": {pinging: pinging{untilDirect: true}, answers: many(relayed, 2), err: refusal, lines: 2, code: fault.CodeNotFound, after: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), most)
				defer cancel()
				if c.cut > 0 {
					time.AfterFunc(c.cut, cancel)
				}
				p, asked := c.pinging, 0
				p.every = time.Second
				p.ask = func(wait time.Duration) (mesh.Ping, error) {
					if wait <= 0 || wait > 5*time.Second {
						t.Errorf("it waits for %v", wait)
					}
					select {
					case <-time.After(c.takes):
					case <-ctx.Done():
						return mesh.Ping{}, ctx.Err()
					}
					asked++
					if asked > len(c.answers) && c.err != nil {
						return mesh.Ping{}, c.err
					}
					return c.answers[min(asked, len(c.answers))-1], nil
				}
				var lines []mesh.Ping
				p.tell = func(a mesh.Ping) error {
					lines = append(lines, a)
					if a.Seq != len(lines) {
						t.Errorf("line %d has the number %d", len(lines), a.Seq)
					}
					return nil
				}
				err := p.run(ctx)
				if len(lines) != c.lines || time.Since(began) != c.after {
					t.Errorf("%d lines after %v, want %d after %v", len(lines), time.Since(began), c.lines, c.after)
				}
				if (err == nil) != (c.code == "") || c.code != "" && (!fault.Has(err, c.code) || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("it ended with %v, want %q and %q", err, c.code, c.says)
				}
			})
		})
	}
}

func TestPingLines(t *testing.T) {
	for want, p := range map[string]mesh.Ping{
		"b (100.112.0.2): 3.0ms, direct by 192.0.2.2:1, path 1.5ms": {RTT: 3, State: "direct", Path: "192.0.2.2:1", Trip: 1.5},
		"b (100.112.0.2): 40ms, relayed by relay h1":                {RTT: 40, State: "relayed", Path: "relay h1"},
		"b (100.112.0.2): dial_timeout: no answer; down: nothing leads there": {State: "down", Why: "nothing leads there",
			Fault: admin.BodyOf(fault.New(fault.CodeDialTimeout, "no answer"))},
	} {
		p.Node, p.To = "b", netip.MustParseAddr("100.112.0.2")
		if got := pingLine(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
