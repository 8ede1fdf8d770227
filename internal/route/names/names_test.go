// SPDX-License-Identifier: Apache-2.0

package names

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

func table(t testing.TB) Table {
	t.Helper()
	var ranges []mapping.Range
	for _, r := range [][3]string{
		{"c1", "10.244.0.0/16", ""}, {"c1", "fd00:10::/64", ""},
		{"c2", "10.244.0.0/16", "240.2.0.0/16"}, {"c2", "fd00:10::/64", "fd00:20::/64"},
	} {
		one, err := mapping.Parse(r[0], r[1], r[2])
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, one)
	}
	out, overlaps := mapping.New(ranges)
	if len(overlaps) > 0 {
		t.Fatal(overlaps)
	}
	dns := netip.MustParseAddrPort("10.244.0.10:53")
	there := func(here netip.Addr) (string, netip.Addr, bool) {
		r, a, ok := out.There(here)
		return r.Cluster, a, ok
	}
	return Table{Zones: []Zone{
		{"c1", "cluster.local.", "cluster.local.", dns}, {"c2", "c2.internal.", "cluster.local.", dns},
		{"c3", "deep.c2.internal.", "cluster.local.", dns},
	}, There: there, Here: out.Here}
}

func query(t testing.TB, name string, kind dnsmessage.Type, more ...dnsmessage.Resource) []byte {
	t.Helper()
	text, err := (&dnsmessage.Message{
		Header:      dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
		Additionals: more,
	}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestWhoIsAsked(t *testing.T) {
	for _, c := range []struct{ asked, cluster, there string }{
		{"web.default.svc.cluster.local.", "c1", "web.default.svc.cluster.local."},
		{"cluster.local.", "c1", "cluster.local."},
		{"WEB.default.svc.C2.Internal.", "c2", "WEB.default.svc.cluster.local."},
		{"web.deep.c2.internal.", "c3", "web.cluster.local."},
		{"4.3.244.10.in-addr.arpa.", "c1", "4.3.244.10.in-addr.arpa."},
		{"4.3.2.240.in-addr.arpa.", "c2", "4.3.244.10.in-addr.arpa."},
		{nameOf(netip.MustParseAddr("fd00:20::1")), "c2", nameOf(netip.MustParseAddr("fd00:10::1"))},
		{"notcluster.local.", "", ""},
		{"example.com.", "", ""},
		{"1.1.1.1.in-addr.arpa.", "", ""},
		{"1.1.1.in-addr.arpa.", "", ""},
		{strings.Repeat("x.", 31) + "ip6.arpa.", "", ""},
		{strings.Repeat("a.", 121) + "c2.internal.", "", ""}, // would be too long there
	} {
		q, err := table(t).Ask(query(t, c.asked, dnsmessage.TypeA))
		var refusal *Refusal
		if c.cluster == "" {
			var m dnsmessage.Message
			if !errors.As(err, &refusal) || m.Unpack(refusal.Message) != nil || m.RCode != dnsmessage.RCodeRefused || m.ID != 7 || !m.Response {
				t.Errorf("%s: %v, %v", c.asked, err, m.Header)
			}
			continue
		}
		var m dnsmessage.Message
		if err == nil {
			err = m.Unpack(q.Query)
		}
		if err != nil || q.Zone.Cluster != c.cluster || m.Questions[0].Name.String() != c.there || m.ID != 7 || !m.RecursionDesired {
			t.Errorf("%s: %v, %v: %v", c.asked, q.Zone, m, err)
		}
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	good := query(t, "cluster.local.", dnsmessage.TypeA)
	answer := append([]byte(nil), good...)
	answer[2] |= 0x80
	for _, text := range [][]byte{nil, {1, 2, 3}, answer} {
		var refusal *Refusal
		if _, err := table(t).Ask(text); err == nil || errors.As(err, &refusal) {
			t.Errorf("%x: %v", text, err)
		}
	}
	status, two := append([]byte(nil), good...), append([]byte(nil), good...)
	status[2] |= 2 << 3
	two[5] = 2
	for code, text := range map[dnsmessage.RCode][]byte{dnsmessage.RCodeNotImplemented: status, dnsmessage.RCodeFormatError: two} {
		var refusal *Refusal
		var m dnsmessage.Message
		if _, err := table(t).Ask(text); !errors.As(err, &refusal) || m.Unpack(refusal.Message) != nil || m.RCode != code {
			t.Errorf("%x: %v, %v", text, err, m.Header)
		}
	}
}

// An answer has the names and addresses by which the caller reaches what it asked for.
func TestAnswers(t *testing.T) {
	n := dnsmessage.MustNewName
	for _, c := range []struct {
		asked string
		kind  dnsmessage.Type
		name  string
		body  dnsmessage.ResourceBody
		want  string
	}{
		{"web.c2.internal.", dnsmessage.TypeA, "web.cluster.local.", &dnsmessage.AResource{A: [4]byte{10, 244, 3, 4}}, "web.c2.internal. [240 2 3 4]"},
		{"web.c2.internal.", dnsmessage.TypeA, "web.cluster.local.", &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}, "web.c2.internal. [192 0 2 1]"},
		{"web.cluster.local.", dnsmessage.TypeA, "web.cluster.local.", &dnsmessage.AResource{A: [4]byte{10, 244, 3, 4}}, "web.cluster.local. [10 244 3 4]"},
		{"WEB.c2.internal.", dnsmessage.TypeA, "web.CLUSTER.local.", &dnsmessage.CNAMEResource{CNAME: n("other.cluster.local.")}, "WEB.c2.internal. other.c2.internal."},
		{"web.c2.internal.", dnsmessage.TypeA, "web.cluster.local.", &dnsmessage.CNAMEResource{CNAME: n("example.com.")}, "web.c2.internal. example.com."},
		{"_h._tcp.web.c2.internal.", dnsmessage.TypeSRV, "_h._tcp.web.cluster.local.", &dnsmessage.SRVResource{Target: n("web.cluster.local.")}, "_h._tcp.web.c2.internal. web.c2.internal."},
		{"4.3.2.240.in-addr.arpa.", dnsmessage.TypePTR, "4.3.244.10.in-addr.arpa.", &dnsmessage.PTRResource{PTR: n("web.cluster.local.")}, "4.3.2.240.in-addr.arpa. web.c2.internal."},
	} {
		names := table(t)
		q, err := names.Ask(query(t, c.asked, c.kind))
		if err != nil {
			t.Fatal(err)
		}
		answer := reply(t, q, 1, c.name, c.body)
		text, err := names.Answer(q, answer, false)
		var m dnsmessage.Message
		if err == nil {
			err = m.Unpack(text)
		}
		if err != nil || m.Questions[0].Name.String() != c.asked || len(m.Answers) != 1 {
			t.Fatalf("%s: %v, %v", c.asked, m, err)
		}
		got := m.Answers[0].Header.Name.String() + " "
		switch b := m.Answers[0].Body.(type) {
		case *dnsmessage.AResource:
			got += fmt.Sprint(b.A)
		case *dnsmessage.CNAMEResource:
			got += b.CNAME.String()
		case *dnsmessage.SRVResource:
			got += b.Target.String()
		case *dnsmessage.PTRResource:
			got += b.PTR.String()
		}
		if got != c.want {
			t.Errorf("%s: %s, not %s", c.asked, got, c.want)
		}
	}
}

// reply answers a question n times.
func reply(t testing.TB, q Question, n int, name string, body dnsmessage.ResourceBody) []byte {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(q.Query); err != nil {
		t.Fatal(err)
	}
	m.Response, m.Additionals = true, nil
	for range n {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: 30}, Body: body})
	}
	text, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An answer for which a caller has no room says so, unless it comes by a stream.
func TestTruncated(t *testing.T) {
	names := table(t)
	opt := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeOPT, Class: 1232}, Body: &dnsmessage.OPTResource{}}
	for room, more := range map[int][]dnsmessage.Resource{512: nil, 1232: {opt}} {
		q, err := names.Ask(query(t, "web.c2.internal.", dnsmessage.TypeA, more...))
		if err != nil {
			t.Fatal(err)
		}
		for n, want := range map[int]bool{(room - 40) / 16: false, room/16 + 1: true} {
			answer := reply(t, q, n, "web.cluster.local.", &dnsmessage.AResource{A: [4]byte{10, 244, 3, 4}})
			for _, stream := range []bool{false, true} {
				text, err := names.Answer(q, answer, stream)
				var m dnsmessage.Message
				if err == nil {
					err = m.Unpack(text)
				}
				if err != nil || m.Truncated != (want && !stream) || !stream && len(text) > room {
					t.Errorf("room for %d, %d answers: %d bytes, truncated %v: %v", room, n, len(text), m.Truncated, err)
				}
			}
		}
	}
}

// The answer to another question is none.
func TestAForeignAnswer(t *testing.T) {
	names := table(t)
	ours, err := names.Ask(query(t, "web.c2.internal.", dnsmessage.TypeA))
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range []struct {
		name string
		kind dnsmessage.Type
	}{{"other.c2.internal.", dnsmessage.TypeA}, {"web.c2.internal.", dnsmessage.TypeAAAA}} {
		other, err := names.Ask(query(t, asked.name, asked.kind))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := names.Answer(ours, reply(t, other, 0, "", nil), false); err == nil {
			t.Errorf("%v is taken", asked)
		}
	}
	if _, err := names.Answer(ours, ours.Query, false); err == nil {
		t.Error("a question is taken for an answer")
	}
}

func TestParseZone(t *testing.T) {
	for text, want := range map[string]string{"Cluster.Local": "cluster.local.", "c1.": "c1.", "a_b.c-d": "a_b.c-d."} {
		if got, err := ParseZone(text); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ".", "a..b", "*.x", "ä", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "b"} {
		if got, err := ParseZone(text); err == nil {
			t.Errorf("%q is taken as %q", text, got)
		}
	}
}

// Nothing that a caller or a server sends breaks it.
func FuzzNames(f *testing.F) {
	f.Add(query(f, "web.c2.internal.", dnsmessage.TypeA), []byte{0, 7, 0x80, 0})
	f.Fuzz(func(t *testing.T, asked, answer []byte) {
		names := table(t)
		q, err := names.Ask(asked)
		if err != nil {
			q, err = names.Ask(query(t, "web.c2.internal.", dnsmessage.TypeA))
			if err != nil {
				t.Fatal(err)
			}
		}
		if text, err := names.Answer(q, answer, false); err == nil && len(text) > max(q.size, 600) {
			t.Fatalf("%d bytes for a room of %d", len(text), q.size)
		}
	})
}
