// SPDX-License-Identifier: Apache-2.0

package system

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// muxWelcome greets as an agent of this release; with a secret the connection is
// to join a session.
func (h *testHub) muxWelcome(cert certificate, secret []byte) (*tls.Conn, *pb.Welcome) {
	h.t.Helper()
	m := hello("by-hand")
	m.GetHello().Attach = secret
	conn := h.dialTLS(&cert.Certificate, trust.ALPNSession)
	return conn, greet(h.t, conn, m)
}

// muxSession opens a session by hand and waits until the hub has it.
func (h *testHub) muxSession(cert certificate) (link carrier.Session, secret []byte) {
	h.t.Helper()
	conn, w := h.muxWelcome(cert, nil)
	if w.GetRefusal() != nil || len(w.GetSecret()) != limit.SessionSecret || w.GetConnections() != 2 {
		h.t.Fatalf("welcomed with %v", w)
	}
	link, err := carrier.Client(conn, carrier.Options{Incoming: 100, Connections: 2})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { link.Close() })
	control, err := link.OpenStream(runtest.Within(h.t), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	control.SetReadDeadline(time.Now().Add(runtest.Patience))
	var m pb.Control
	if err := wire.Read(control, limit.ControlFrame, &m); err != nil { // the hub's first ping
		h.t.Fatal(err)
	}
	plantSession(h.t, w.GetSecret())
	return link, w.GetSecret()
}

// A connection is added to a session only for its agent, with its secret, and
// within its bounds. A wrong secret and a wrong agent are told the same.
func TestWhoMayAddAConnection(t *testing.T) {
	var c clock
	h := startHub(t, hubSpec{now: c.now, extra: "connections: 2\ncertificates: {agentLife: 1h}"})
	cert, other := h.enrol(h.token("c1").Join), h.enrol(h.token("c1").Join)
	elsewhere := h.enrol(h.token("c2").Join)
	client := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	link, secret := h.muxSession(cert)
	almost := append([]byte{}, secret...)
	almost[len(almost)-1] ^= 1

	refused := func(name string, cert certificate, secret []byte, want fault.Code) string {
		t.Helper()
		conn, w := h.muxWelcome(cert, secret)
		r := w.GetRefusal()
		if r.GetCode() != string(want) || len(w.GetSecret()) > 0 || len(w.GetCapabilities()) > 0 {
			t.Errorf("%s: %v, want %s", name, w, want)
		}
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		mustClose(t, name, conn)
		return r.GetWhat() + r.GetWhy() + r.GetNext()
	}
	wrong := refused("a wrong secret", cert, almost, fault.CodeSessionLost)
	for name, text := range map[string]string{
		"another agent of the cluster":   refused("another agent of the cluster", other, secret, fault.CodeSessionLost),
		"an agent of another cluster":    refused("an agent of another cluster", elsewhere, secret, fault.CodeSessionLost),
		"a secret that is too short":     refused("a secret that is too short", cert, secret[:1], fault.CodeSessionLost),
		"a secret that is too long":      refused("a secret that is too long", cert, append(almost, secret...), fault.CodeSessionLost),
		"another agent with no secret's": refused("another agent with no secret's", other, almost, fault.CodeSessionLost),
	} {
		if text != wrong {
			t.Errorf("%s reads %q, a wrong secret %q", name, text, wrong)
		}
	}
	refused("a client", client, secret, fault.CodeUnauthorized)
	if ag := h.status("c1").Agents; len(ag) != 1 || ag[0].Connections != 1 {
		t.Errorf("after all refusals: %+v", ag)
	}

	conn, w := h.muxWelcome(cert, secret)
	if w.GetRefusal() != nil || len(w.GetSecret()) > 0 {
		t.Fatalf("the agent itself: %v", w)
	}
	if err := link.Attach(conn); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "the session has two connections", h.connections(2))
	refused("one too many", cert, secret, fault.CodeLimit)

	c.forward(2 * time.Hour)
	refused("a certificate that has run out", cert, secret, fault.CodeCertExpired)
	c.forward(-2 * time.Hour)
	counted := map[string]float64{}
	for _, m := range family(t, h.reg, "tombolo_hub_connections_added_total").GetMetric() {
		counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	if counted["ok"] != 1 || counted[string(fault.CodeLimit)] != 1 || counted[string(fault.CodeSessionLost)] != 6 || len(counted) != 3 {
		t.Errorf("counted: %v", counted)
	}
	link.Close()
	runtest.Eventually(t, "the session has ended", func() bool { return h.connected("c1") == 0 })
	refused("after the end", cert, secret, fault.CodeSessionLost)
	if log := h.log.String(); secretIn(log, secret) {
		t.Error("the hub's log holds the secret")
	}
}

func secretIn(log string, secret []byte) bool {
	for _, text := range []string{
		string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret),
	} {
		if strings.Contains(log, text) {
			return true
		}
	}
	return false
}

// A hub that drains adds no connections.
func TestNoConnectionIsAddedWhileTheHubDrains(t *testing.T) {
	h := startHub(t, hubSpec{extra: "connections: 2\ndrainTimeout: 1h"})
	cert := h.enrol(h.token("c1").Join)
	_, secret := h.muxSession(cert)
	startAgent(t, agentSpec{join: h.token("c3").Join})
	live, err := dialConnect(runtest.Within(t), h.socket("c3", "connect"), runtest.Echo(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	closing(t, live)
	h.soft()
	runtest.Eventually(t, "it drains", func() bool {
		_, w := h.muxWelcome(cert, secret)
		return w.GetRefusal().GetCode() == string(fault.CodeDraining)
	})
}

// One connection is what there is where the configuration of either side says so.
func TestOneConnectionByConfiguration(t *testing.T) {
	for name, c := range map[string]struct{ hub, agent string }{
		"at the hub": {"connections: 1", ""}, "at the agent": {"", "connections: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			h, a := pair(t, hubSpec{extra: c.hub}, agentSpec{extra: c.agent})
			h.bulk(t, flood(t), false)
			h.carries(t, 32<<20)
			if n := h.status("c1").Agents[0].Connections; n != 1 {
				t.Errorf("%d connections", n)
			}
			if a.log.records("further connection") != nil || a.log.records("no further connection") != nil {
				t.Error("the agent tried to get another one")
			}
		})
	}
}
