// SPDX-License-Identifier: Apache-2.0

// Package names decides about questions of DNS: which cluster a name is of, how the cluster knows that name, and what
// its answer says here, where names and addresses may be others. It does not ask anybody.
package names

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Zone are the names of a cluster.
type Zone struct {
	Cluster string
	Here    string         // under which its names are asked for, such as c1.internal.
	There   string         // as the cluster has them, such as cluster.local.
	Server  netip.AddrPort // that answers there
}

// ParseZone reads the name of a zone: letters, digits, - and _ between dots, at most 253 characters.
func ParseZone(s string) (string, error) {
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if len(s) == 0 || len(s) > 253 {
		return "", fmt.Errorf("%q is not the name of a zone, such as cluster.local", s)
	}
	for label := range strings.SplitSeq(s, ".") {
		plain := strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
		if label == "" || len(label) > 63 || !plain {
			return "", fmt.Errorf("%q is not the name of a zone, such as cluster.local", s)
		}
	}
	return s + ".", nil
}

// Table finds the zone of a name.
type Table struct {
	Zones []Zone
	// There is the cluster that an address leads to, with the address there.
	There func(here netip.Addr) (cluster string, there netip.Addr, ok bool)
	// Here is the address by which that of a cluster is reached; false: it is not.
	Here func(cluster string, there netip.Addr) (here netip.Addr, ok bool)
}

// Question is what is asked of a cluster in place of what a caller asked.
type Question struct {
	Zone  Zone
	Query []byte // for the cluster's server, with the caller's id

	asked dnsmessage.Question
	name  dnsmessage.Name // of asked, as the cluster has it
	size  int             // that the caller has room for
}

// Refusal is the answer to a question that nobody else is asked.
type Refusal struct{ Message []byte }

func (r *Refusal) Error() string { return "the question is answered here" }

// plain is the room of whoever does not say that it has more (RFC 1035).
const plain = 512

// Ask reads a caller's question. The error is a *Refusal, or says that there is nothing to answer.
func (t Table) Ask(query []byte) (Question, error) {
	var m dnsmessage.Message
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil {
		return Question{}, err
	}
	if head.Response {
		return Question{}, fmt.Errorf("it is an answer")
	}
	refuse := func(code dnsmessage.RCode, asked ...dnsmessage.Question) (Question, error) {
		h := dnsmessage.Header{ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired,
			RecursionAvailable: true, RCode: code}
		text, err := (&dnsmessage.Message{Header: h, Questions: asked}).Pack()
		if err != nil {
			return Question{}, err
		}
		return Question{}, &Refusal{text}
	}
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return refuse(dnsmessage.RCodeFormatError)
	}
	if head.OpCode != 0 {
		return refuse(dnsmessage.RCodeNotImplemented)
	}
	q := Question{asked: m.Questions[0], size: plain}
	for _, r := range m.Additionals {
		if r.Header.Type == dnsmessage.TypeOPT {
			q.size = max(plain, int(r.Header.Class)) // RFC 6891 section 6.2.3
		}
	}
	var ok bool
	if q.Zone, q.name, ok = t.find(q.asked.Name); !ok || q.asked.Class != dnsmessage.ClassINET {
		return refuse(dnsmessage.RCodeRefused, q.asked) // a resolver that has another server asks that one
	}
	m.Questions[0].Name = q.name
	if q.Query, err = m.Pack(); err != nil {
		return refuse(dnsmessage.RCodeFormatError)
	}
	return q, nil
}

// Find finds the zone of a name, and the name as the cluster has it.
func (t Table) Find(name string) (z Zone, there string, ok bool) {
	n, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
	if err != nil {
		return z, "", false
	}
	z, renamed, ok := t.find(n)
	return z, renamed.String(), ok
}

// find finds the zone of a name, and the name as the cluster has it: the longest zone that it is in, or for a name of
// an address the cluster that the address leads to.
func (t Table) find(name dnsmessage.Name) (z Zone, there dnsmessage.Name, ok bool) {
	for _, one := range t.Zones {
		if _, in := cut(name.String(), one.Here); in && len(one.Here) > len(z.Here) {
			z, ok = one, true
		}
	}
	if ok {
		there, ok = renamed(name, z.Here, z.There)
		return z, there, ok
	}
	addr, ok := addressOf(name.String())
	if !ok {
		return z, there, false
	}
	cluster, at, ok := t.There(addr)
	if !ok {
		return z, there, false
	}
	for _, one := range t.Zones {
		if one.Cluster == cluster {
			there, err := dnsmessage.NewName(nameOf(at))
			return one, there, err == nil
		}
	}
	return z, there, false
}

// Answer is what the cluster's answer to a question says here. stream says that the caller has room for all of it.
func (t Table) Answer(q Question, answer []byte, stream bool) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return nil, err
	}
	if !m.Response || len(m.Questions) != 1 || !same(m.Questions[0].Name, q.name) || m.Questions[0].Type != q.asked.Type {
		return nil, fmt.Errorf("it is not the answer to what was asked")
	}
	m.Questions[0] = q.asked
	for _, section := range [][]dnsmessage.Resource{m.Answers, m.Authorities, m.Additionals} {
		for i := range section {
			t.here(q, &section[i])
		}
	}
	text, err := m.Pack()
	if err != nil || stream || len(text) <= q.size {
		return text, err
	}
	m.Truncated = true // the caller asks again by TCP
	m.Answers, m.Authorities, m.Additionals = nil, nil, nil
	return m.Pack()
}

// here rewrites the names and addresses of a record.
func (t Table) here(q Question, r *dnsmessage.Resource) {
	z := q.Zone
	name := func(n *dnsmessage.Name) {
		if same(*n, q.name) {
			*n = q.asked.Name
		} else if now, ok := renamed(*n, z.There, z.Here); ok {
			*n = now
		}
	}
	name(&r.Header.Name)
	address := func(b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if now, in := t.Here(z.Cluster, a); ok && in && now.BitLen() == 8*len(b) {
			copy(b, now.AsSlice())
		}
	}
	switch body := r.Body.(type) {
	case *dnsmessage.AResource:
		address(body.A[:])
	case *dnsmessage.AAAAResource:
		address(body.AAAA[:])
	case *dnsmessage.CNAMEResource:
		name(&body.CNAME)
	case *dnsmessage.PTRResource:
		name(&body.PTR)
	case *dnsmessage.NSResource:
		name(&body.NS)
	case *dnsmessage.MXResource:
		name(&body.MX)
	case *dnsmessage.SRVResource:
		name(&body.Target)
	case *dnsmessage.SOAResource:
		name(&body.NS)
		name(&body.MBox)
	}
}

// renamed is a name of one zone in another one.
func renamed(n dnsmessage.Name, from, to string) (dnsmessage.Name, bool) {
	front, in := cut(n.String(), from)
	if !in {
		return n, false
	}
	out, err := dnsmessage.NewName(front + to)
	return out, err == nil
}

// cut splits a name into what is in front of a zone, with its dot, and the zone.
func cut(name, zone string) (front string, in bool) {
	at := len(name) - len(zone)
	if at < 0 || !strings.EqualFold(name[at:], zone) || at > 0 && name[at-1] != '.' {
		return "", false
	}
	return name[:at], true
}

func same(a, b dnsmessage.Name) bool { return strings.EqualFold(a.String(), b.String()) }

// addressOf is the address of a name for one (RFC 1035 section 3.5, RFC 3596 section 2.5).
func addressOf(name string) (netip.Addr, bool) {
	name = strings.ToLower(name)
	if front, in := cut(name, "in-addr.arpa."); in {
		labels := strings.Split(strings.TrimSuffix(front, "."), ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return a, err == nil
	}
	front, in := cut(name, "ip6.arpa.")
	labels := strings.Split(strings.TrimSuffix(front, "."), ".")
	if !in || len(labels) != 32 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i, l := range labels {
		v, err := strconv.ParseUint(l, 16, 4)
		if err != nil || len(l) != 1 {
			return netip.Addr{}, false
		}
		at := 31 - i // of the half bytes
		b[at/2] |= byte(v) << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(b), true
}

// nameOf is the name for an address.
func nameOf(a netip.Addr) string {
	var s strings.Builder
	b := a.AsSlice()
	for i := len(b) - 1; i >= 0; i-- {
		if a.Is4() {
			fmt.Fprintf(&s, "%d.", b[i])
		} else {
			fmt.Fprintf(&s, "%x.%x.", b[i]&15, b[i]>>4)
		}
	}
	if a.Is4() {
		return s.String() + "in-addr.arpa."
	}
	return s.String() + "ip6.arpa."
}

// Failed is the answer to a question that nobody answered; nil if there is none.
func Failed(query []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil {
		return nil
	}
	h := dnsmessage.Header{ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired,
		RecursionAvailable: true, RCode: dnsmessage.RCodeServerFailure}
	asked, err := p.Question()
	if err != nil {
		return nil
	}
	text, err := (&dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{asked}}).Pack()
	if err != nil {
		return nil
	}
	return text
}
