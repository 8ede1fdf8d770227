// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// TestNobodyFloodsTheLog has unknown peers, callers and nodes do, again and again, whatever
// the hub and its agent write a line about, and wants of each line no more than its
// bound, a sum of the rest, and the lines of others none the less.
func TestNobodyFloodsTheLog(t *testing.T) {
	const flood = 3 * limit.LogEach
	h, a := pair(t, hubSpec{extra: "limits: {caller: {dialsPerSecond: none}}\n"}, agentSpec{})
	connect, grpcSocket := h.socket("c1", hub.ProtocolConnect), h.socket("c1", hub.ProtocolKonnectivity)
	agent := h.enrol(h.token("c1").Join)
	who, err := id.ParseURI(agent.Leaf.URIs[0].String())
	if err != nil {
		t.Fatal(err)
	}
	lie := forged(t, who, time.Hour)
	client := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	csr, err := trust.NewCSR(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	guess := admin.JoinRequest{TokenID: "guessed", Secret: "guessed", Cluster: "c1", CSR: string(csr)}
	say := func(network, address, text string) {
		conn, err := (&net.Dialer{}).DialContext(runtest.Within(t), network, address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		io.WriteString(conn, text)
		if conn, half := conn.(interface{ CloseWrite() error }); half {
			conn.CloseWrite()
			io.Copy(io.Discard, conn.(net.Conn))
		}
		conn.Close()
	}
	first := func(conn *tls.Conn) {
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		io.WriteString(conn, "\x00\x00\x00\x02\xff\xff")
		conn.CloseWrite()
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	within := func(do func(context.Context)) {
		ctx, cancel := context.WithTimeout(context.Background(), runtest.Patience)
		defer cancel()
		do(ctx)
	}
	for name, attack := range map[string]func(){
		"no TLS":                         func() { say("tcp", h.listen, "SSH-2.0-x\r\n") },
		"no TLS at the admin port":       func() { say("tcp", h.adminURL[len("https://"):], "SSH-2.0-x\r\n") },
		"junk at the health port":        func() { say("tcp", a.health, "\x00\r\n\r\n") },
		"junk at the CONNECT socket":     func() { say("unix", connect, "\x00\r\n\r\n") },
		"junk at konnectivity":           func() { say("unix", grpcSocket, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\njunkjunkjunk") },
		"a session without a name":       func() { first(h.dialTLS(nil, trust.ALPNSession)) },
		"a session under a lie":          func() { first(h.dialTLS(lie, trust.ALPNSession)) },
		"a session that says junk":       func() { first(h.dialTLS(&agent.Certificate, trust.ALPNSession)) },
		"the relay, for an agent":        func() { first(h.dialTLS(&agent.Certificate, trust.ALPNRelay)) },
		"the relay, for an unknown peer": func() { first(h.dialTLS(nil, trust.ALPNRelay)) },
		"an agent as a client":           func() { first(h.dialTLS(&agent.Certificate)) },
		"a client that says junk":        func() { first(h.dialTLS(&client.Certificate)) },
		"a guessed token":                func() { postJoin(runtest.Within(t), h.listen, "/v1/join", guess, anyHub(nil, trust.ALPNJoin)) },
		"a renewal for an unknown peer":  func() { postJoin(runtest.Within(t), h.listen, "/v1/renew", guess, anyHub(nil, trust.ALPNJoin)) },
		"a renewal of an agent": func() {
			postJoin(runtest.Within(t), h.listen, "/v1/renew", guess, anyHub(&agent.Certificate, trust.ALPNJoin))
		},
		"a closed port, by konnectivity": func() {
			within(func(ctx context.Context) {
				if c, err := dialKonnectivity(t, ctx, grpcSocket, "127.0.0.1:1"); err == nil {
					c.Close()
				}
			})
		},
		"what the agent denies": func() {
			within(func(ctx context.Context) { dialConnect(ctx, connect, "10.0.0.1:80") })
		},
	} {
		for range flood {
			attack()
		}
		t.Logf("%s: done", name)
	}
	before := len(h.log.records("token created"))
	h.token("c2")
	if n := len(h.log.records("token created")); n != before+1 {
		t.Errorf("the flood hides what the operator does: %d lines", n-before)
	}
	for role, log := range map[string]*journal{"hub": h.log, "agent": a.log} {
		for kind, n := range log.kinds() {
			most := limit.LogEach
			if kind.level == "DEBUG" {
				most *= limit.LogDebug
			}
			if n > 2*most { // the flood may be of two minutes
				t.Errorf("%s: %d lines of %+v", role, n, kind)
			}
		}
	}
	telemetry.TurnLog(context.Background(), h.log.logger(), time.Now())
	left := map[string]float64{}
	for _, s := range h.log.records(telemetry.LeftOut) {
		left[fmt.Sprint(s["line"], " ", s["code"])] += s["count"].(float64)
	}
	for _, want := range []string{"refused certificate_invalid", "join refused token_unknown"} {
		if left[want] == 0 {
			t.Errorf("no sum of %q: %v", want, left)
		}
	}
}

type lineKind struct{ level, message, code, cluster, caller string }

// kinds counts the lines of a log.
func (j *journal) kinds() map[lineKind]int {
	out := map[lineKind]int{}
	for _, r := range j.all() {
		text := func(key string) string {
			s, _ := r[key].(string)
			return s
		}
		out[lineKind{text("level"), text("msg"), text("code"), text("cluster"), text("caller")}]++
	}
	return out
}
