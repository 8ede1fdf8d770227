// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// hubPorts is the configuration of one port of a hub.
func hubPorts(name, target, clusters string) string {
	return fmt.Sprintf("ports: [{name: %s, target: %q, clusters: [%s]}]\n", name, target, clusters)
}

// agentPort is the configuration of one port of an agent.
func agentPort(name, listen string) string {
	return fmt.Sprintf("ports: [{name: %s, listen: %q}]\n", name, listen)
}

// dialPort connects to a port of an agent.
func dialPort(t *testing.T, listen string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	return closing(t, conn)
}

// wantCut reads a connection that is reset or closed at the other end.
func wantCut(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || isTimeout(err) {
		t.Errorf("%d bytes, %v; a reset is expected", n, err)
	}
}

// wantReset connects to a port of an agent that does not work: whether connect hears of it or the first read, is open.
func wantReset(t *testing.T, listen string) {
	t.Helper()
	conn, err := net.Dial("tcp", listen)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	wantCut(t, closing(t, conn))
}

// TestTheWayBack: a caller beside the agent reaches a port of the hub by the agent's listener, both ways and beyond a
// half-close; the record says who asked for what, and where it led. A name that the hub does not have is a reset, and
// the agent's log says it once.
func TestTheWayBack(t *testing.T) {
	to, file := replyAfterEnd(t), filepath.Join(runtest.Dir(t), "audit.jsonl")
	good, bad := runtest.Address(5000), runtest.Address(5001)
	h, a := pair(t, hubSpec{extra: hubPorts("registry", to.Addr(), "c1") + fmt.Sprintf("audit: {path: %q}\n", file)},
		agentSpec{extra: fmt.Sprintf("ports: [{name: registry, listen: %q}, {name: other, listen: %q}]\n", good, bad)})
	conn := dialPort(t, good)
	if _, err := io.WriteString(conn, "question"); err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).CloseWrite()
	if all, err := io.ReadAll(conn); err != nil || string(all) != "got question" {
		t.Errorf("%q, %v", all, err)
	}
	for range 3 {
		wantReset(t, bad)
	}
	if said := a.log.records("a port of the hub does not work"); len(said) != 1 || said[0]["code"] != string(fault.CodePolicyDenied) || said[0]["port"] != "other" {
		t.Errorf("the agent's log: %v", said)
	}
	a.stop()
	h.stop()
	var who string
	me, err := enrol.Load(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	who = me.Who.URI()
	refused := 0
	for _, rec := range audited(t, file, audit.Filter{}) {
		if rec.Frontend != "back" || rec.Caller != who || rec.Cluster != "c1" {
			t.Errorf("%+v", rec)
		}
		if rec.Kind == audit.KindRefusal {
			refused++
			continue
		}
		if rec.Asked != wire.PortAddress("registry") || rec.Resolved != to.Addr() || rec.Code != "ok" || rec.Up != 8 || rec.Down != 12 || rec.Metadata.Get("source") != conn.LocalAddr().String() {
			t.Errorf("%+v", rec)
		}
	}
	if refused != 3 {
		t.Errorf("%d refusals", refused)
	}
}

// Nothing but the name of a port opens anything, and nobody but agents has a way back.
func TestWhatAnAgentMayAskFor(t *testing.T) {
	to := runtest.Echo(t)
	h, a := pair(t, hubSpec{extra: hubPorts("registry", to.Addr(), "c1")}, agentSpec{})
	other := startAgent(t, agentSpec{join: h.token("c2").Join})
	certificateOf := func(dir string) *enrol.Identity {
		me, err := enrol.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		return me
	}
	asks := func(me *enrol.Identity, target string) (net.Conn, error) {
		return connectOver(runtest.Within(t), h.dialTLS(me.TLS(), "http/1.1"), target)
	}
	one, two := certificateOf(a.dir), certificateOf(other.dir)
	conn, err := asks(one, wire.PortAddress("registry"))
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, conn, "through")
	for _, target := range []string{to.Addr(), "registry:1", "registry.port.tombolo:2", "10.0.0.1:80", "kubernetes.default.svc:443"} {
		_, err := asks(one, target)
		wantRefused(t, err, 403, fault.CodeUnauthorized)
	}
	_, err = asks(one, wire.PortAddress("none"))
	wantRefused(t, err, 403, fault.CodePolicyDenied)
	_, err = asks(two, wire.PortAddress("registry")) // its cluster has no port at all
	wantRefused(t, err, 403, fault.CodeUnauthorized)
	if r := asRefused(t, err); strings.Contains(r.body, "registry") || strings.Contains(r.body, to.Addr()) {
		t.Errorf("it is told more than it may know: %s", r.body)
	}
	// To a client the name is one in the cluster, as any.
	client := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	if _, err := h.dialConnectTLS(runtest.Within(t), client, wire.PortAddress("registry")); asRefused(t, err).code != fault.CodeDialDNS {
		t.Errorf("a client: %v", err)
	}
	// A revocation ends what is open, and lets nothing in.
	h.call("POST", "/v1/revocations", admin.RevocationRequest{Role: "agent", Cluster: "c1", Name: one.Who.Name}, &admin.Revocation{})
	if n, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a stream of a revoked agent: %d bytes, %v", n, err)
	}
	_, err = asks(one, wire.PortAddress("registry"))
	wantRefused(t, err, 401, fault.CodeCertRevoked)
}

// Both ends drain: what is open goes on, and nothing new begins.
func TestDrainsOfTheWayBack(t *testing.T) {
	for _, who := range []string{"agent", "hub"} {
		t.Run(who, func(t *testing.T) {
			to, listen := runtest.Echo(t), runtest.Address(5000)
			h, a := pair(t, hubSpec{extra: hubPorts("registry", to.Addr(), "c1")}, agentSpec{extra: agentPort("registry", listen)})
			conn := dialPort(t, listen)
			mustEcho(t, conn, "before")
			p := a.process
			if who == "hub" {
				p = h.process
			}
			p.soft()
			if who == "hub" {
				runtest.Eventually(t, "new ones are refused", func() bool {
					wantReset(t, listen)
					return len(a.log.records("a port of the hub does not work")) > 0
				})
				logged(t, a.log, "a port of the hub does not work", fault.CodeDraining)
			} else {
				runtest.Eventually(t, "it listens no more", func() bool {
					c, err := net.Dial("tcp", listen)
					if err == nil {
						c.Close()
					}
					return err != nil
				})
			}
			mustEcho(t, conn, "goes on")
			if ended(p) {
				t.Fatal("it did not wait for the stream")
			}
			conn.Close()
			if err := p.wait(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// A reload of the hub is in force at once: for what is open, and for what comes.
func TestReloadOfPorts(t *testing.T) {
	to, listen := runtest.Echo(t), runtest.Address(5000)
	h, _ := pair(t, hubSpec{}, agentSpec{extra: agentPort("registry", listen)})
	wantReset(t, listen)
	if err := h.reload(hubPorts("registry", to.Addr(), "\"c*\"")); err != nil {
		t.Fatal(err)
	}
	conn := dialPort(t, listen)
	mustEcho(t, conn, "now")
	if err := h.reload(hubPorts("registry", h.listen, "c1")); !fault.Has(err, fault.CodeConfig) {
		t.Errorf("a port that leads to the hub: %v", err)
	}
	mustEcho(t, conn, "as before")
	if err := h.reload(hubPorts("registry", to.Addr(), "c2")); err != nil {
		t.Fatal(err)
	}
	wantCut(t, conn)
	wantReset(t, listen)

	hub, err := newHub(t, hubSpec{listen: runtest.Address(8443), extra: hubPorts("registry", "127.0.0.1:1", "c1")})
	if err != nil {
		t.Fatal(err)
	}
	hub.process = start(hub.Run)
	<-hub.Ready()
	if err := hub.stop(); err != nil {
		t.Error(err)
	}
	at := runtest.Address(8443)
	if hub, err = newHub(t, hubSpec{listen: at, extra: hubPorts("registry", at, "c1")}); err != nil {
		t.Fatal(err)
	}
	if err := hub.Run(context.Background(), context.Background()); !fault.Has(err, fault.CodeConfig) {
		t.Errorf("the hub starts with a port that leads to itself: %v", err)
	}
}

// One hub is away: the other one is asked. Both are: a reset, and it works again once one is back.
func TestHubsOnTheWayBack(t *testing.T) {
	to, listen := runtest.Echo(t), runtest.Address(5000)
	h := startHub(t, hubSpec{extra: hubPorts("registry", to.Addr(), "c1")})
	a := startAgent(t, agentSpec{join: h.token("c1").Join, extra: agentPort("registry", listen) + fmt.Sprintf("hubs: [%q, %q]\n", nobody(t), h.listen)})
	mustEcho(t, dialPort(t, listen), "by the other one")
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "no hub is there", func() bool { return !a.Ready() })
	for range 2 {
		wantReset(t, listen)
	}
	if n := len(a.log.records("a port of the hub does not work")); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	startHub(t, hubSpec{dir: h.dir, listen: h.listen, extra: hubPorts("registry", to.Addr(), "c1")})
	runtest.Eventually(t, "it works again", func() bool {
		conn, err := net.Dial("tcp", listen)
		if err != nil {
			return false
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		_, err = exchange(conn, "again")
		return err == nil
	})
	if n := len(a.log.records("a port of the hub works again")); n != 1 {
		t.Errorf("the log says %d times that it works again", n)
	}
}

// An agent that floods its hub with CONNECTs stays within the bounds of one caller: another cluster and its own session
// do not notice.
func TestFloodOfTheWayBack(t *testing.T) {
	s := besieged(t)
	to := runtest.Echo(t)
	if err := s.reload("limits: {caller: {sessions: 20, streams: 5}}\n" + hubPorts("registry", to.Addr(), "c1")); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, agentSpec{join: s.token("c1").Join})
	me, err := enrol.Load(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	const flood = 200
	ctx := runtest.Within(t)
	var held []net.Conn
	s.begin()
	s.during(func() error {
		denied := 0
		for i := range flood {
			conn := s.dialTLS(me.TLS(), "http/1.1")
			if i%2 == 0 { // one that says nothing
				held = append(held, conn)
				continue
			}
			c, err := connectOver(ctx, conn, wire.PortAddress("registry"))
			var r *refused
			switch {
			case err == nil:
				held = append(held, c)
			case errors.As(err, &r) && r.code != fault.CodeLimit:
				return err
			default:
				denied++
			}
		}
		if denied < flood/2-5 {
			return fmt.Errorf("%d of %d are refused", denied, flood)
		}
		return nil
	})
	s.costs(flood, 10)
	if !a.Ready() {
		t.Error("its own session has ended")
	}
	to2, path := runtest.Echo(t), s.socket("c1", "connect")
	conn, err := dialConnect(ctx, path, to2.Addr())
	if err != nil {
		t.Fatalf("a dial into its own cluster: %v", err)
	}
	mustEcho(t, conn, "unhurt")
	conn.Close()
	for _, c := range held {
		c.Close()
	}
	s.lifted()
}
