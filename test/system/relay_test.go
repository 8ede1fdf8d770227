// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// TestRelay: nodes of one cluster exchange datagrams, and reach no other cluster.
func TestRelay(t *testing.T) {
	h := startHub(t, hubSpec{})
	a := relayed(t, h.node("c1", "a.example.org"), h.listen).up(t)
	b := relayed(t, h.node("c1", "b"), h.listen).up(t)
	other := relayed(t, h.node("c2", "b"), h.listen).up(t)

	if a.say("b", datagram(1, 0), datagram(2, limit.RelayDatagram)) != 2 || b.say("a.example.org", datagram(3, 1420)) != 1 {
		t.Error("datagrams were not taken")
	}
	runtest.Eventually(t, "all have come", func() bool { return len(b.seen()) == 2 && len(a.seen()) == 1 })
	if got := fmt.Sprint(b.seen(), a.seen()); got != "[a.example.org 1 a.example.org 2] [b 3]" {
		t.Error(got)
	}
	other.say("a.example.org", datagram(4, 0))
	runtest.Eventually(t, "the other cluster has no such node", func() bool { return slices.Equal(other.missed(), []string{"a.example.org"}) })
	a.say("nobody", datagram(5, 0))
	runtest.Eventually(t, "an absent node is told", func() bool { return slices.Equal(a.missed(), []string{"nobody"}) })
	if a.say("b", datagram(6, limit.RelayDatagram+1)) != 0 || a.Send("elsewhere", "b", datagram(6, 0)) != 0 {
		t.Error("what cannot be sent was taken")
	}
	a.say("b", []byte("GET / HTTP/1.1\r\n\r\n"), datagram(7, 0)) // the first is no ciphertext
	runtest.Eventually(t, "what follows comes", func() bool { return len(b.seen()) == 3 })
	if got := b.seen()[2]; got != "a.example.org 7" || len(other.seen()) != 0 {
		t.Error(got, other.seen())
	}
	st := a.Status()[0]
	if !st.Observed.Addr().IsLoopback() || st.Rate != limit.RelayNodeRate || st.RTT <= 0 || st.Sent != 5 || st.Received != 1 || st.Dropped != 1 || st.Fault != nil {
		t.Errorf("%+v", st)
	}
	got := h.status("c1").Relay
	if got == nil || got.Nodes != 2 || got.Packets != 4 || got.Dropped.Absent != 1 || got.Dropped.Foreign != 1 || len(got.Connected) != 2 || got.Connected[0].Name != "a.example.org" || got.Connected[0].Packets != 3 {
		t.Errorf("status %+v", got)
	}
}

// TestOnlyNodesUseTheRelay: who is no node is told so, and a node does nothing else.
func TestOnlyNodesUseTheRelay(t *testing.T) {
	h := startHub(t, hubSpec{})
	node := h.node("c1", "n1")
	agent, err := enrol.Client{Dial: carrier.Dialer().DialContext, Now: time.Now, Log: h.log.logger()}.Join(runtest.Within(t), parsed(t, h.token("c1").Join), newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	if code := refusal(t, rawRelay(t, h, relayTLS(agent))); code != fault.CodeUnauthorized {
		t.Errorf("an agent: %s", code)
	}
	none := relayTLS(node)
	none.GetClientCertificate = nil
	if code := refusal(t, rawRelay(t, h, none)); code != fault.CodeCertInvalid {
		t.Errorf("nobody: %s", code)
	}
	var first bytes.Buffer
	if err := wire.Write(&first, hello("x")); err != nil {
		t.Fatal(err)
	}
	for alpn, said := range map[string]string{trust.ALPNSession: first.String(), "http/1.1": "CONNECT 10.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n"} {
		conn := rawRelay(t, h, trust.HubClientConfig(node.Check(time.Now), node.TLS(), alpn))
		if _, err := conn.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(conn) // how it ends is not the matter
		if !bytes.Contains(answer, []byte(fault.CodeUnauthorized)) {
			t.Errorf("%s: %q", alpn, answer)
		}
	}
}

// TestANodesName: one name is one node's.
func TestANodesName(t *testing.T) {
	h := startHub(t, hubSpec{})
	ctx := runtest.Within(t)
	first := h.node("c1", "n1")
	if first.Who.URI() != "spiffe://tombolo.internal/cluster/c1/node/n1" {
		t.Errorf("%s", first.Who)
	}
	line := h.nodeToken("c1", "", 5)
	_, err := enroller(t, nil, "n1").Join(ctx, line, newKey(t))
	wantFault(t, err, fault.CodeNodeTaken)
	if _, err := enroller(t, nil, "n1").Join(ctx, line, first.Key); err != nil {
		t.Errorf("the same key again: %v", err)
	}
	bound := h.nodeToken("c1", "n2", 1)
	_, err = enroller(t, nil, "n3").Join(ctx, bound, newKey(t))
	wantFault(t, err, fault.CodeJoinLine)
	if me, err := enroller(t, nil, "").Join(ctx, bound, newKey(t)); err != nil || me.Who.Name != "n2" {
		t.Errorf("a token that names the node: %v", err)
	}
	_, err = enroller(t, nil, "").Join(ctx, line, newKey(t))
	wantFault(t, err, fault.CodeJoinLine)
	_, err = enroller(t, nil, "n4").Join(ctx, parsed(t, h.token("c1").Join), newKey(t))
	wantFault(t, err, fault.CodeJoinLine)
	_, err = enrol.Client{Dial: carrier.Dialer().DialContext, Now: time.Now, Log: h.log.logger()}.Join(ctx, line, newKey(t))
	wantFault(t, err, fault.CodeJoinLine)
	renewed, err := enroller(t, nil, "").Renew(ctx, first, []string{h.listen})
	if err != nil || renewed.Who != first.Who || renewed.Cert.Equal(first.Cert) {
		t.Fatalf("renewal: %v", err)
	}
}

// TestARevokedNode: its connection ends, it can neither come back nor renew, and its
// name is free.
func TestARevokedNode(t *testing.T) {
	h := startHub(t, hubSpec{})
	ctx := runtest.Within(t)
	me := h.node("c1", "n1")
	n := relayed(t, me, h.listen).up(t)
	var list admin.CertificateList
	h.call("GET", "/v1/certificates", nil, &list)
	if len(list.Certificates) != 1 || list.Certificates[0].Identity != me.Who.URI() {
		t.Fatalf("%+v", list)
	}
	h.revoke("node", list.Certificates[0].Serial)
	runtest.Eventually(t, "the node knows why", func() bool { s := n.Status()[0]; return !s.Connected && s.Fault.Code == fault.CodeCertRevoked })
	if code := refusal(t, rawRelay(t, h, relayTLS(me))); code != fault.CodeCertRevoked {
		t.Errorf("again: %s", code)
	}
	_, err := enroller(t, nil, "").Renew(ctx, me, []string{h.listen})
	wantFault(t, err, fault.CodeCertRevoked)
	line := h.nodeToken("c1", "", 5)
	var again *enrol.Identity
	runtest.Eventually(t, "the name is free, with another second", func() bool {
		again, err = enroller(t, nil, "n1").Join(ctx, line, newKey(t))
		return err == nil
	})
	relayed(t, again, h.listen).up(t)
	if code := refusal(t, rawRelay(t, h, relayTLS(me))); code != fault.CodeCertRevoked {
		t.Errorf("the old one beside the new one: %s", code)
	}
}

// TestTheRelayAfterARestart: clients come back, revocations and names stay.
func TestTheRelayAfterARestart(t *testing.T) {
	h := startHub(t, hubSpec{})
	a, b := relayed(t, h.node("c1", "a"), h.listen).up(t), relayed(t, h.node("c1", "b"), h.listen).up(t)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "both notice", func() bool { return !a.Status()[0].Connected && !b.Status()[0].Connected })
	if a.say("b", datagram(1, 0)) != 0 {
		t.Error("taken without a connection")
	}
	second := startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	a.up(t)
	b.up(t)
	a.say("b", datagram(2, 0))
	runtest.Eventually(t, "it comes", func() bool { return slices.Equal(b.seen(), []string{"a 2"}) })
	_, err := enroller(t, nil, "a").Join(runtest.Within(t), second.nodeToken("c1", "", 1), newKey(t))
	wantFault(t, err, fault.CodeNodeTaken)
}

// TestANewerConnection takes the place of the older one, without a gap.
func TestANewerConnection(t *testing.T) {
	h := startHub(t, hubSpec{})
	a, b := relayed(t, h.node("c1", "a"), h.listen).up(t), relayed(t, h.node("c1", "b"), h.listen).up(t)
	since := a.Status()[0].Since
	renewed, err := enroller(t, nil, "").Renew(runtest.Within(t), a.me, []string{h.listen})
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.me = renewed
	a.mu.Unlock()
	a.Renew()
	n, lost := uint64(0), 0
	runtest.Eventually(t, "another connection is in use", func() bool {
		n++
		lost += 1 - a.say("b", datagram(n, 0))
		s := a.Status()[0]
		return s.Connected && s.Since.After(since)
	})
	a.say("b", datagram(1<<40, 0))
	runtest.Eventually(t, "the last comes", func() bool { return slices.Contains(b.seen(), fmt.Sprint("a ", 1<<40)) })
	if lost != 0 || a.Status()[0].Fault != nil {
		t.Errorf("%d were not taken, %v", lost, a.Status()[0].Fault)
	}
	if got := h.status("c1").Relay; got.Nodes != 2 || !got.Connected[0].CertificateEnd.Equal(renewed.Cert.NotAfter) {
		t.Errorf("%+v", got)
	}
	conn := rawRelay(t, h, relayTLS(renewed))
	rawRelay(t, h, relayTLS(renewed))
	if code := refusal(t, conn); code != fault.CodeSessionLost {
		t.Errorf("the older one is told %s", code)
	}
}

// TestTheRelayDrains: nodes are told, and served until the end.
func TestTheRelayDrains(t *testing.T) {
	h := startHub(t, hubSpec{})
	conn := rawRelay(t, h, relayTLS(h.node("c1", "a")))
	if kind, _, err := next(conn); kind != relayproto.Welcome || err != nil {
		t.Fatal(kind, err)
	}
	h.soft()
	kind, _, err := next(conn)
	if kind != relayproto.Drain || err != nil {
		t.Fatal(kind, err)
	}
	if code := refusal(t, conn); code != fault.CodeDraining {
		t.Errorf("the end is told as %s", code)
	}
}

// TestASlowNode harms itself: what others send to it is dropped, and what they send
// to each other comes.
func TestASlowNode(t *testing.T) {
	h := startHub(t, hubSpec{extra: "limits: {relay: {nodeBytesPerSecond: none, bytesPerSecond: none}}"})
	a, b := relayed(t, h.node("c1", "a"), h.listen).up(t), relayed(t, h.node("c1", "b"), h.listen).up(t)
	slow := rawRelay(t, h, relayTLS(h.node("c1", "slow")))
	if kind, _, err := next(slow); kind != relayproto.Welcome || err != nil {
		t.Fatal(kind, err)
	}
	n := uint64(0)
	runtest.Eventually(t, "packets to the slow node are dropped", func() bool {
		for range 500 {
			a.say("slow", datagram(0, 9000))
		}
		n++
		a.say("b", datagram(n, 0))
		return h.status("c1").Relay.Dropped.Queue > 100
	})
	if q := h.status("c1").Relay.Queued; q > 4*limit.RelayQueue {
		t.Errorf("%d bytes wait", q)
	}
	runtest.Eventually(t, "the others are served", func() bool {
		n++
		a.say("b", datagram(n, 0))
		return slices.Contains(b.seen(), fmt.Sprint("a ", n-1))
	})
}

// TestAFlood beyond the rate is dropped at the hub, and others are served.
func TestAFlood(t *testing.T) {
	h := startHub(t, hubSpec{extra: "limits: {relay: {nodeBytesPerSecond: 64KiB, nodes: 3}}"})
	a, b, c := relayed(t, h.node("c1", "a"), h.listen).up(t), relayed(t, h.node("c1", "b"), h.listen).up(t), relayed(t, h.node("c1", "c"), h.listen).up(t)
	runtest.Eventually(t, "packets beyond the rate are dropped", func() bool {
		for range 100 {
			a.say("b", datagram(0, 9000))
		}
		return h.status("c1").Relay.Dropped.Rate > 100
	})
	c.say("b", datagram(1, 0))
	runtest.Eventually(t, "another node's comes", func() bool { return slices.Contains(b.seen(), "c 1") })
	if code := refusal(t, rawRelay(t, h, relayTLS(h.node("c1", "d")))); code != fault.CodeLimit {
		t.Errorf("a fourth node: %s", code)
	}
}

// TestManyNodes cost two goroutines each.
func TestManyNodes(t *testing.T) {
	const many = 100
	h := startHub(t, hubSpec{})
	line := h.nodeToken("c1", "", many)
	first, err := enroller(t, nil, "n0").Join(runtest.Within(t), line, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	var others []*enrol.Identity // before anybody connects: who says nothing for 29 s is left
	for i := 1; i < many; i++ {
		me, err := enroller(t, nil, fmt.Sprint("n", i)).Join(t.Context(), line, newKey(t))
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, me)
	}
	last := rawRelay(t, h, relayTLS(first))
	if kind, _, err := next(last); kind != relayproto.Welcome || err != nil {
		t.Fatal(kind, err)
	}
	before := runtime.NumGoroutine()
	for i, me := range others {
		conn := rawRelay(t, h, relayTLS(me))
		if kind, _, err := next(conn); kind != relayproto.Welcome || err != nil {
			t.Fatal(kind, err)
		}
		if _, err := conn.Write(relayproto.AppendPacket(nil, "n0", datagram(uint64(i), 0))); err != nil {
			t.Fatal(err)
		}
		if kind, body, err := next(last); kind != relayproto.Packet || err != nil || body[0] == 0 {
			t.Fatal(kind, err)
		}
	}
	runtest.Eventually(t, "two goroutines for each", func() bool { return runtime.NumGoroutine()-before <= 2*many+20 })
	if st := h.status("c1").Relay; st.Nodes != many {
		t.Errorf("%d nodes", st.Nodes)
	}
}

func parsed(t *testing.T, line string) trust.Join {
	t.Helper()
	j, err := trust.ParseJoin(line)
	if err != nil {
		t.Fatal(err)
	}
	return j
}
