// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// FuzzRead reads whole files, with one file of ranges. What is read is decided by,
// twice the same, and what is refused has a reason.
func FuzzRead(f *testing.F) {
	f.Add([]byte(head+rules), []byte("203.0.113.0/24 # the office\n2001:db8::/48\n"))
	f.Add([]byte(head+"rules:\n- {name: a, sources: [\"@b\"], deny: [\"@b:1-2,9\", \"*.x:1\", \"[fd00::/8]:1\"]}\nlists: [{name: b, file: x}]\n"), []byte("10.0.0.0/8"))
	f.Add([]byte(head+"rules: &r\n- {name: a, allow: [\"*\"]}\n- {name: b, allow: [\"*\"]}\n"), []byte(""))
	f.Fuzz(func(t *testing.T, file, list []byte) {
		open := func(path string) ([]byte, error) {
			if path == "" || strings.HasSuffix(path, "no") {
				return nil, errors.New("no such file")
			}
			return list, nil
		}
		p, findings := policy.Read("p.yaml", file, open)
		again, same := policy.Read("p.yaml", file, open)
		if !reflect.DeepEqual(findings, same) || !reflect.DeepEqual(p.Rules(), again.Rules()) {
			t.Errorf("read twice: %v and %v", findings, same)
		}
		bad := slices.ContainsFunc(findings, func(f policy.Finding) bool { return !f.Warning })
		if bad != (p == nil) {
			t.Fatalf("policy %v with %v", p != nil, findings)
		}
		for _, q := range findings {
			if q.Message == "" || q.File == "" {
				t.Errorf("%+v has no message or no file", q)
			}
		}
		if p == nil {
			return
		}
		if p.Size() == 0 || p.Size() != len(p.Rules()) {
			t.Errorf("%d rules", p.Size())
		}
		known := map[string]bool{"": true}
		for _, r := range p.Rules() {
			known[r.Name] = true
		}
		for _, text := range []string{"c1 - cluster 192.168.0.9:10250", "c1 unix:c1/connect - a.x=10.1.1.1:1 203.0.113.9", "- - - [fd00::1]:1", "c1 - - a.x:1", "c - - 127.0.0.1:80"} {
			v := policy.Decide(ask(t, text), p)
			if v.Why() == "" || v.Allow && v.Open || !known[v.Rule] || v.Allow && v.Rule == "" {
				t.Errorf("%s: %+v", text, v)
			}
		}
		for _, o := range p.Overlaps() {
			if !known[o.Allow] || !known[o.Deny] || o.Allow == o.Deny || o.At == "" {
				t.Errorf("%+v", o)
			}
		}
	})
}

// draw takes choices from bytes; without any left it takes the first.
type draw struct{ bytes []byte }

func (d *draw) byte() byte {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return b
}

func (d *draw) of(texts ...string) string { return texts[int(d.byte())%len(texts)] }

// some gives nil for any, or one or two of the texts.
func (d *draw) some(texts ...string) []string {
	switch n := d.byte(); n % 4 {
	case 0, 1:
		return nil
	case 2:
		return []string{d.of(texts...)}
	}
	return []string{d.of(texts...), d.of(texts...)}
}

// addr is an address that is not special, as the oracle wants it.
func (d *draw) addr() netip.Addr {
	return netip.AddrFrom4([4]byte{1 + d.byte()%99, d.byte(), d.byte() % 100, d.byte()})
}

func (d *draw) prefix() string {
	return netip.PrefixFrom(d.addr(), int(d.byte())%33).Masked().String()
}

func (d *draw) rule(i int) policy.Rule {
	r := policy.Rule{
		Name: fmt.Sprintf("r%d", i), Deny: d.byte()%3 == 0,
		Cluster: d.some("c1", "c2", "c*", "*2", "*"), Caller: d.some("unix:c1/connect", "unix:*", "*/connect", "*"),
		Egress: d.some("cluster", "etcd", "c*"), Flow: d.some(policy.FlowDial, "d*l", "di*"),
	}
	if d.byte()%3 == 0 {
		for range 1 + d.byte()%12 { // beyond some they are in a trie
			r.Source = append(r.Source, d.prefix())
		}
	}
	for range 1 + d.byte()%4 {
		text := d.of("*", "a.example", "x.b.example", "*.example", "*.b.example", "", "", "", "", "")
		if text == "" {
			text = d.prefix()
		}
		r.Destination = append(r.Destination, text+d.of("", ":443"))
	}
	return r
}

// FuzzDecide draws rules and requests from bytes and asks the oracle as well.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 0, 3, 5, 10, 1, 2, 3, 16, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add([]byte(strings.Repeat("\x03\x01\x00\x0a", 64)))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &draw{data}
		rules := make([]policy.Rule, 1+d.byte()%8)
		for i := range rules {
			rules[i] = d.rule(i)
		}
		p, problems := policy.Compile(rules, nil)
		if p == nil {
			t.Fatalf("%v of %+v", problems, rules)
		}
		var useful []policy.Rule // without those that the analysis says change nothing
		for i, r := range rules {
			if !slices.ContainsFunc(problems, func(q policy.Problem) bool { return q.Path == fmt.Sprintf("rules[%d]", i) }) {
				useful = append(useful, r)
			}
		}
		rest, more := policy.Compile(useful, nil)
		if rest == nil {
			t.Fatalf("%v of %+v", more, useful)
		}
		for range 1 + d.byte()%4 {
			q := policy.Request{
				Cluster: d.of("c1", "c2", "d2", ""), Caller: d.of("unix:c1/connect", "unix:c2/connect", ""), Egress: d.of("cluster", "etcd", ""),
				Flow: d.of(policy.FlowDial, policy.FlowDial, "other"), Name: d.of("", "a.example", "x.b.example", "example", "other"), Addr: d.addr(), Port: 80,
			}
			if d.byte()%2 == 0 {
				q.Port = 443
			}
			if d.byte()%2 == 0 {
				q.Source = d.addr()
			}
			allow, deny := oracle(rules, q)
			if d.byte()%4 == 0 {
				q.Addr = netip.AddrFrom16(q.Addr.As16()) // its mapped form is the same
			}
			v := policy.Decide(q, p)
			if v.Allow != (allow && !deny) || v.Open || v.Why() == "" || deny && v.Rule == "" {
				t.Fatalf("%+v of %+v: %+v, want allow=%v deny=%v", q, rules, v, allow, deny)
			}
			if w := policy.Decide(q, rest); w.Allow != v.Allow {
				t.Fatalf("%+v of %+v: %+v, and %+v without what changes nothing", q, rules, v, w)
			}
			if back := policy.Decide(policy.Request{Cluster: q.Cluster, Caller: q.Caller, Flow: policy.FlowBack, Source: q.Source, Name: "registry"}, p); back.Allow {
				t.Fatalf("a port is opened by %+v: %+v", rules, back)
			}
			unresolved := q
			unresolved.Addr = netip.Addr{}
			if u := policy.Decide(unresolved, p); u.Allow || v.Allow && q.Name != "" && !u.Open {
				t.Fatalf("%+v of %+v: %+v without the address, %+v with it", q, rules, u, v)
			}
		}
	})
}
