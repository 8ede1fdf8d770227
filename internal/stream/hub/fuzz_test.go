// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// spoken is a connection whose peer has said all that it will say, in pieces.
type spoken struct {
	net.Conn
	text  []byte
	piece int
	taken int
}

func (s *spoken) Read(p []byte) (int, error) {
	if s.taken == len(s.text) {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.piece)], s.text[s.taken:])
	s.taken += n
	return n, nil
}

func (s *spoken) SetReadDeadline(time.Time) error { return nil }

// FuzzReadConnect: what is accepted is one CONNECT with a target that reads as
// one, and nothing behind its head; everything else is refused with a code, and
// costs no more than the head's bound.
func FuzzReadConnect(f *testing.F) {
	for _, s := range []string{
		"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: 10.0.0.1:443\r\n\r\n", "CONNECT [fd00::1]:1 HTTP/1.1\n\n",
		"CONNECT a.b:1 HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\n folded: x\r\n\r\n",
		"CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "CONNECT http://a:1/ HTTP/1.1\r\n\r\n",
		"CONNECT a:1 HTTP/1.1\r\nX: " + strings.Repeat("x", limit.RequestHeader) + "\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: hub\r\n\r\n", "OPTIONS / HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
	} {
		f.Add([]byte(s), uint16(1<<15))
		f.Add([]byte(s), uint16(1))
	}
	h := &connect{}
	f.Fuzz(func(t *testing.T, text []byte, piece uint16) {
		conn := &spoken{text: text, piece: max(1, int(piece))}
		asked, err := h.readConnect(t.Context(), conn, splice.Net(conn))
		target := asked.target
		if conn.taken > limit.RequestHeader {
			t.Errorf("%d bytes were read", conn.taken)
		}
		if err != nil {
			f := fault.From(err)
			switch f.Code {
			case fault.CodeRequest, fault.CodeMethod, fault.CodeHeaderTooLarge, fault.CodeEarlyData:
			default:
				t.Errorf("an error without its code: %v", err)
			}
			oneAnswer(t, refusal(f))
			return
		}
		head := text[:conn.taken]
		if !bytes.HasSuffix(head, []byte("\n\r\n")) && !bytes.HasSuffix(head, []byte("\n\n")) {
			t.Errorf("%q is accepted with bytes behind its head", head)
		}
		line, _, _ := strings.Cut(string(head), "\n")
		if asked.ping {
			if strings.TrimSuffix(line, "\r") != "OPTIONS * HTTP/1.1" || target != "" {
				t.Errorf("%q is a ping of %q", line, target)
			}
			return
		}
		if strings.TrimSuffix(line, "\r") != "CONNECT "+target+" HTTP/1.1" {
			t.Errorf("%q asks for %q", line, target)
		}
		if p, err := policy.ParseTarget(target); err != nil || p.Port == 0 {
			t.Errorf("the target %q: %v", target, err)
		}
	})
}

// oneAnswer wants a refusal to be one HTTP answer, whatever of the request is in it.
func oneAnswer(t *testing.T, text string) {
	t.Helper()
	head, body, ok := strings.Cut(text, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	if !ok || !strings.HasPrefix(head, "HTTP/1.1 4") || strings.ContainsAny(strings.Join(lines, ""), "\r\n\x00\x1b") || len(text) > 8<<10 {
		t.Errorf("the refusal %q", text)
	}
	if !slices.Contains(lines, fmt.Sprintf("Content-Length: %d", len(body))) || strings.Contains(text[1:], "\nHTTP/") {
		t.Errorf("the refusal %q", text)
	}
}

// FuzzParseConfig: what is accepted can be served, and a file has one reading.
func FuzzParseConfig(f *testing.F) {
	const head = "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\n"
	for _, s := range []string{
		"", "listen: :8443\nadvertise: [hub.example]\n", "advertise: ['[::1]', '::1', 'a:1', 'a:']\n",
		"clusters: [{name: c1, sockets: [{protocol: connect, path: /x/../y, mode: '0660'}]}]\n",
		"clusters: [{name: a, sockets: [{protocol: connect}]}, {name: b, sockets: [{protocol: konnectivity, path: /run/tombolo/clusters/a/connect.sock}]}]\n",
		"ports: [{name: a, target: 'x:1', clusters: ['*']}, {name: a, target: '[::1]:2', clusters: ['a*b', '']}]\n",
		"connections: 4\ncertificates: {agentLife: 1h, renewGrace: -1s}\n",
		"sockets: {mode: '777', owner: '0', group: '4294967296'}\n", "streams: {idleTimeout: 9223372036854775807ns}\n",
	} {
		f.Add([]byte(head + s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("hub.yaml", data)
		again, err2 := ParseConfig("hub.yaml", data)
		if fmt.Sprint(err) != fmt.Sprint(err2) || err == nil && len(fixedChanges(c, again)) > 0 {
			t.Fatalf("read twice: %v and %v, %v", err, err2, fixedChanges(c, again))
		}
		if err != nil {
			if !fault.Has(err, fault.CodeConfig) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		for name, d := range map[string]time.Duration{
			"agentLife": c.agentLife, "renewGrace": c.renewGrace, "clientLife": c.clientLife,
			"dialTimeout": c.dialTimeout, "idleTimeout": c.idleTimeout, "drain": c.Drain,
		} {
			if d <= 0 {
				t.Errorf("%s is %v", name, d)
			}
		}
		if c.connections < 1 || c.connections > limit.Connections || !filepath.IsAbs(c.RunDir) {
			t.Errorf("%d connections, run directory %q", c.connections, c.RunDir)
		}
		for _, a := range c.Advertise {
			if _, _, err := net.SplitHostPort(a); err != nil || strings.ContainsAny(a, " ,/@\n") {
				t.Errorf("advertises %q: %v", a, err)
			}
		}
		paths := map[string]bool{}
		for _, cluster := range c.sockets.Clusters {
			for _, s := range cluster.Sockets {
				if p := s.Spec.Path; !filepath.IsAbs(p) || len(p) >= limit.SocketPath || paths[p] || strings.Contains(p, "\x00") {
					t.Errorf("a socket at %q", p)
				}
				paths[s.Spec.Path] = true
				if s.Spec.Mode&^fs.FileMode(0o777) != 0 || s.Spec.Mode&0o200 == 0 {
					t.Errorf("a socket of mode %o", s.Spec.Mode)
				}
			}
		}
	})
}

// FuzzHello: whatever an agent of the hub says first, it is agreed on within the
// bounds or refused with a code, and the answer is a frame that an agent can read.
func FuzzHello(f *testing.F) {
	for _, m := range []*pb.Hello{
		{Instance: "one", VersionMin: wire.Version, VersionMax: wire.Version, Capabilities: []string{wire.CapabilityMux, wire.CapabilityChoice}},
		{Instance: "one", VersionMin: wire.Version, VersionMax: wire.Version, Capabilities: []string{wire.CapabilityMux}, Attach: make([]byte, limit.SessionSecret)},
		{Instance: "old"}, {Instance: strings.Repeat("x", 65), VersionMax: 9}, {},
	} {
		data, err := wire.Append(nil, &pb.Control{Frame: &pb.Control_Hello{Hello: m}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	h := bareHub(f)
	h.cores = 8
	c1, err := id.ParseCluster("c1")
	if err != nil {
		f.Fatal(err)
	}
	a := arrival{}
	h.clusters.add(c1)
	if a.cluster, err = h.clusters.get(c1); err != nil {
		f.Fatal(err)
	}
	if a.agent, err = id.ParseAgent("a1"); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m pb.Control
		if wire.Read(bytes.NewReader(data), limit.ControlFrame, &m) != nil {
			return
		}
		g, welcome := agreement{hello: m.GetHello()}, &pb.Welcome{}
		if refused := h.agents.agree(a, &g, welcome); refused != nil {
			if refused.Code == "" || refused.Code == fault.CodeInternal || refused.What == "" {
				t.Errorf("refused without a code: %v", refused)
			}
			welcome = &pb.Welcome{Refusal: wire.ToFault(refused)}
		} else if g.connections < 1 || g.connections > limit.Connections || welcome.Version != wire.Version ||
			len(g.hello.GetAttach()) > 0 || (g.connections > 1) != (len(g.secret) == limit.SessionSecret) {
			t.Errorf("agreed on %+v, %v", g, welcome)
		}
		answer, err := wire.Append(nil, &pb.Control{Frame: &pb.Control_Welcome{Welcome: welcome}})
		if err != nil || len(answer) > limit.ControlFrame/4 {
			t.Errorf("an answer of %d bytes: %v", len(answer), err)
		}
	})
}
