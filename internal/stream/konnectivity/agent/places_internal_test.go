// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
)

// nameServer answers from a zone over UDP, and gives a resolver that asks it.
func nameServer(t *testing.T, zone map[string][]dnsmessage.ResourceBody) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { pc.Close(); <-done })
	go func() {
		defer close(done)
		for buf := make([]byte, 1500); ; {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if raw := answerTo(buf[:n], zone); raw != nil {
				pc.WriteTo(raw, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func answerTo(raw []byte, zone map[string][]dnsmessage.ResourceBody) []byte {
	var m dnsmessage.Message
	if m.Unpack(raw) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	all, known := zone[strings.TrimSuffix(q.Name.String(), ".")]
	if !known {
		out.RCode = dnsmessage.RCodeNameError
	}
	for _, body := range all {
		kind := dnsmessage.TypeSRV
		switch body.(type) {
		case *dnsmessage.AResource:
			kind = dnsmessage.TypeA
		case *dnsmessage.AAAAResource:
			kind = dnsmessage.TypeAAAA
		}
		if kind == q.Type {
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: kind,
				Class: dnsmessage.ClassINET, TTL: 1}, Body: body})
		}
	}
	packed, err := out.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func srv(target string, port uint16) dnsmessage.ResourceBody {
	return &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(target), Port: port, Priority: 1, Weight: 1}
}

// TestPlaces asks a name server for what each host stands for.
func TestPlaces(t *testing.T) {
	a := func(last byte) dnsmessage.ResourceBody { return &dnsmessage.AResource{A: [4]byte{192, 0, 2, last}} }
	v6 := &dnsmessage.AAAAResource{AAAA: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}}
	dns := nameServer(t, map[string][]dnsmessage.ResourceBody{
		"one.example": {a(1)}, "two.example": {a(2), a(3), v6}, "none.example": {},
		"_konnectivity._tcp.example":      {srv("one.example.", 8132), srv("two.example.", 9000)},
		"_gone._tcp.example":              {srv(".", 0)},
		"_half._tcp.example":              {srv("missing.example.", 1), srv("one.example.", 2)},
		"_konnectivity._tcp.none.example": {srv("missing.example.", 1)},
	})
	of := []place{{"10.0.0.1:8091", "kubernetes.default.svc"}}
	for _, c := range []struct {
		hosts []string
		of    []place
		want  string // empty: none
	}{
		{[]string{"192.0.2.9"}, nil, "192.0.2.9:8091=192.0.2.9"},
		{[]string{"2001:db8::9"}, nil, "[2001:db8::9]:8091=2001:db8::9"},
		{[]string{"one.example"}, nil, "192.0.2.1:8091=one.example"},
		{[]string{"two.example"}, nil, "192.0.2.2:8091=two.example 192.0.2.3:8091=two.example [2001:db8::1]:8091=two.example"},
		{[]string{"one.example", "missing.example", "192.0.2.9"}, nil, "192.0.2.1:8091=one.example 192.0.2.9:8091=192.0.2.9"},
		{[]string{"_konnectivity._tcp.example"}, nil,
			"192.0.2.1:8132=example 192.0.2.2:9000=example 192.0.2.3:9000=example [2001:db8::1]:9000=example"},
		{[]string{"_konnectivity._tcp.example."}, nil,
			"192.0.2.1:8132=example 192.0.2.2:9000=example 192.0.2.3:9000=example [2001:db8::1]:9000=example"},
		{[]string{"_half._tcp.example"}, nil, "192.0.2.1:2=example"},
		{[]string{"one.example"}, of, "10.0.0.1:8091=kubernetes.default.svc 192.0.2.1:8091=one.example"},
		{nil, of, "10.0.0.1:8091=kubernetes.default.svc"},
		{[]string{"missing.example"}, of, "10.0.0.1:8091=kubernetes.default.svc"},
		{[]string{"_gone._tcp.example"}, nil, ""},
		{[]string{"_konnectivity._tcp.none.example"}, nil, ""},
		{[]string{"_missing._tcp.example"}, nil, ""},
		{[]string{"missing.example"}, nil, ""},
		{nil, nil, ""},
	} {
		d := directory{dns: dns}
		found := map[string]bool{}
		var err error
		for range 12 { // each in its turn
			var at place
			if at, err = d.next(t.Context(), c.hosts, 8091, c.of); err != nil {
				break
			}
			found[at.address+"="+at.name] = true
		}
		var got []string
		for text := range found {
			got = append(got, text)
		}
		want := strings.Fields(c.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || (err != nil) != (c.want == "") || err != nil && !fault.Has(err, fault.CodeHubAway) {
			t.Errorf("%q: %q, %v; want %q", c.hosts, got, err, want)
		}
	}
}

func TestSRVDomain(t *testing.T) {
	for host, want := range map[string]string{
		"_a._tcp.example.com": "example.com", "_a._tcp.x.": "x", "example.com": "", "_a.example.com": "", "_a._tcp": "",
		"_._tcp.example": "", "a._tcp.example": "", "_a.tcp.example": "", "": "", "_a._tcp.": "",
	} {
		if got, ok := srvDomain(host); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v", host, got, ok)
		}
	}
}

func TestServicePlaces(t *testing.T) {
	all := []kube.Endpoint{
		{Address: "10.0.0.1", Ports: map[string]int{"https": 6443, "konnectivity": 8132}},
		{Address: "10.0.0.1", Ports: map[string]int{"https": 6443, "konnectivity": 8132}}, // of two slices
		{Address: "fd00::1", Ports: map[string]int{"konnectivity": 8132}},
		{Address: "10.0.0.2", Ports: map[string]int{"https": 6443}},
	}
	for text, want := range map[string]string{
		"default/kubernetes": "10.0.0.1:8091 [fd00::1]:8091 10.0.0.2:8091", "ns/x:konnectivity": "10.0.0.1:8132 [fd00::1]:8132", "ns/x:y": "",
		"x": "!", "a/b/c": "!", "/x": "!", "x/": "!", "a/b:": "!", "": "!",
	} {
		s, err := parseService(text)
		if (err != nil) != (want == "!") {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		var got []string
		for _, p := range s.places(all, 8091) {
			got = append(got, p.address)
			if p.name != s.name+"."+s.namespace+".svc" {
				t.Errorf("%q is called %q", p.address, p.name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	s, _ := parseService("default/kubernetes")
	if n := servers(s.places(all, 1)); n != 2 {
		t.Errorf("%d servers with addresses of two families", n)
	}
}

// TestLookAtService keeps what is known while there is no answer.
func TestLookAtService(t *testing.T) {
	answer, failed := []kube.Endpoint{{Address: "10.0.0.1"}}, error(nil)
	a := &Agent{Deps: Deps{Log: slog.New(slog.DiscardHandler)}, service: &lookup{service: service{"a", "b", ""}, port: 1,
		list: func(context.Context) ([]kube.Endpoint, error) { return answer, failed }}}
	step := func(want string, servers int) {
		t.Helper()
		a.lookAtService(t.Context())
		if fmt.Sprint(a.places()) != want || a.listed != servers {
			t.Errorf("%v, %d servers; want %s", a.places(), a.listed, want)
		}
	}
	step("[{10.0.0.1:1 b.a.svc}]", 1)
	answer, failed = nil, errors.New("away")
	step("[{10.0.0.1:1 b.a.svc}]", 1)
	failed = nil
	step("[]", 0)
	a.service = nil
	step("[]", 0)
}
