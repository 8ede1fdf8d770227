// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

func (h *testHub) wholeStatus() (out admin.Status) {
	h.t.Helper()
	h.call("GET", "/v1/status", nil, &out)
	return out
}

// rejoin asks for the name again with the key and the token of before.
func rejoin(t *testing.T, h *testHub, line trust.Join, dir, role string) error {
	t.Helper()
	me, err := enrol.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := trust.NewCSR(me.Key)
	if err != nil {
		t.Fatal(err)
	}
	q := admin.JoinRequest{TokenID: line.TokenID, Secret: line.Secret, CSR: string(csr), Role: role}
	if role != "" {
		q.Node = me.Who.Name
	}
	_, err = postJoin(runtest.Within(t), h.listen, "/v1/join", q, anyHub(nil, trust.ALPNJoin))
	return err
}

func renewal(t *testing.T, h *testHub, dir string) error {
	t.Helper()
	me, err := enrol.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := trust.NewCSR(me.Key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = postJoin(runtest.Within(t), h.listen, "/v1/renew", admin.RenewRequest{CSR: string(csr)}, anyHub(me.TLS(), trust.ALPNJoin))
	return err
}

// TestARevokedAgent: its session and streams end, no way leads back but a new token, and
// other agents of its cluster and token go on. All of it outlives the hub, and a backup.
func TestARevokedAgent(t *testing.T) {
	file := filepath.Join(runtest.Dir(t), "audit.jsonl")
	h := startHub(t, hubSpec{extra: fmt.Sprintf("audit: {path: %q}\n", file)})
	token := h.tokenWith("c1", time.Hour, 3)
	line, err := trust.ParseJoin(token.Join)
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, agentSpec{join: token.Join})
	name := h.status("c1").Agents[0].ID
	to := runtest.Echo(t)
	live, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	mustEcho(t, live, "before")
	b := startAgent(t, agentSpec{join: token.Join})
	me, err := enrol.Load(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	resuming := anyHub(me.TLS(), trust.ALPNSession)
	resuming.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	shake := func(t *testing.T) *tls.Conn {
		conn, err := (&tls.Dialer{Config: resuming}).DialContext(runtest.Within(t), "tcp", h.listen)
		if err != nil {
			t.Fatal(err)
		}
		return closing(t, conn).(*tls.Conn)
	}
	if f := greet(t, shake(t), hello("for a ticket")).GetRefusal(); f != nil { // of a second process
		t.Fatal(f)
	}

	op := h.issue(admin.CertificateRequest{Role: "operator", Name: "alice"})
	var done admin.Revocation
	q := admin.RevocationRequest{Role: "agent", Cluster: "c1", Name: name}
	if err := h.operator(op).Call(runtest.Within(t), "POST", "/v1/revocations", q, &done); err != nil {
		t.Fatal(err)
	}
	if done.Identity != me.Who.URI() || done.Connections < 1 || done.Token != token.ID || !strings.Contains(done.Warning, "tombolo token revoke "+token.ID) {
		t.Errorf("%+v", done)
	}
	live.SetReadDeadline(time.Now().Add(runtest.Patience))
	if _, err := live.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("its stream goes on: %v", err)
	}
	r := logged(t, a.log, "this agent was revoked: the hub does not let it in any more", fault.CodeCertRevoked)
	if !strings.Contains(r["reason"].(string), "tombolo token create") {
		t.Errorf("no next step: %v", r)
	}
	if a.Ready() {
		t.Error("it is ready")
	}
	conn := shake(t)
	if f := greet(t, conn, hello("again")).GetRefusal(); f.GetCode() != string(fault.CodeCertRevoked) || !conn.ConnectionState().DidResume {
		t.Errorf("a resumed handshake (%v): %v", conn.ConnectionState().DidResume, f)
	}
	wantShutOut := func(t *testing.T, h *testHub) {
		t.Helper()
		wantFault(t, rejoin(t, h, line, a.dir, ""), fault.CodeCertRevoked)
		wantFault(t, renewal(t, h, a.dir), fault.CodeCertRevoked)
		if f := greet(t, h.dialTLS(me.TLS(), trust.ALPNSession), hello("x")).GetRefusal(); f.GetCode() != string(fault.CodeCertRevoked) {
			t.Errorf("a session: %v", f)
		}
		if st := h.wholeStatus(); len(st.Revoked) != 1 || st.Revoked[0].Name != name || st.Revoked[0].Cluster != "c1" || st.Revoked[0].Role != "agent" {
			t.Errorf("status: %+v", st.Revoked)
		}
	}
	wantShutOut(t, h)
	if !b.Ready() {
		t.Error("another agent is not ready")
	}
	again, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, again, "by the other agent")
	again.Close()
	runtest.Eventually(t, "a record tells who did it", func() bool {
		return slices.ContainsFunc(audited(t, file, audit.Filter{}), func(r audit.Record) bool {
			return r.Kind == audit.KindRevocation && r.Subject == me.Who.URI() && strings.HasSuffix(r.Operator, "/operator/alice") &&
				r.Serial == op.serial && r.Cluster == "c1" && r.Source != ""
		})
	})

	var backup bytes.Buffer
	if _, err := h.admin.Download(runtest.Within(t), "/v1/backup", &backup); err != nil {
		t.Fatal(err)
	}
	a.stop()
	b.stop()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h = startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	wantShutOut(t, h)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if err := state.Restore(&backup, filepath.Join(h.dir, "state"), true); err != nil {
		t.Fatal(err)
	}
	h = startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	wantShutOut(t, h)

	// A new token brings the machine back, under another name.
	next := startAgent(t, agentSpec{dir: a.dir, join: h.token("c1").Join})
	if st := h.status("c1").Agents; len(st) != 1 || st[0].ID == name {
		t.Errorf("it came back as %+v", st)
	}
	next.stop()
}

// TestARevokedAgentDoesNotHammer: neither sessions nor renewals.
func TestARevokedAgentDoesNotHammer(t *testing.T) {
	h := startHub(t, hubSpec{extra: "certificates: {agentLife: 2s}"})
	a := startAgent(t, agentSpec{join: h.token("c1").Join})
	h.call("POST", "/v1/revocations", admin.RevocationRequest{Role: "agent", Cluster: "c1", Name: h.status("c1").Agents[0].ID}, &admin.Revocation{})
	logged(t, a.log, "this agent was revoked: the hub does not let it in any more", fault.CodeCertRevoked)
	r := logged(t, a.log, "certificate not renewed", fault.CodeCertRevoked)
	if wait := time.Duration(r["retryIn"].(float64)); wait < 10*time.Minute {
		t.Errorf("it asks for another one in %v", wait)
	}
}

// TestARevokedNodeStaysOut: the key that claimed the token does not get the name back by
// it, nor does another key; a token that is made afterwards gives it.
func TestARevokedNodeStaysOut(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.nodeToken("c1", "", 5)
	dir := runtest.Dir(t)
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	client := enrol.Client{Dial: (&net.Dialer{}).DialContext, Now: time.Now, Log: h.log.logger(), Role: "node", Node: "worker-1"}
	me, err := client.Join(runtest.Within(t), line, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := me.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := rejoin(t, h, line, dir, "node"); err != nil {
		t.Fatalf("before: %v", err)
	}
	h.call("POST", "/v1/revocations", admin.RevocationRequest{Role: "node", Cluster: "c1", Name: "worker-1"}, &admin.Revocation{})
	wantFault(t, rejoin(t, h, line, dir, "node"), fault.CodeCertRevoked)
	other, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Join(runtest.Within(t), line, other)
	wantFault(t, err, fault.CodeCertRevoked)
	fresh := h.nodeToken("c1", "", 1)
	runtest.Eventually(t, "a new token gives the name", func() bool { // from the next second on
		_, err := client.Join(runtest.Within(t), fresh, other)
		return err == nil
	})
	if st := h.wholeStatus(); len(st.Revoked) != 0 {
		t.Errorf("%+v", st.Revoked)
	}
}

// TestRenewalsHaveARate: an identity that renews, or joins again by its token, without end
// is refused, is told when to come again, and keeps nobody else from it.
func TestRenewalsHaveARate(t *testing.T) {
	h := startHub(t, hubSpec{})
	token := h.tokenWith("c1", time.Hour, 3)
	line, err := trust.ParseJoin(token.Join)
	if err != nil {
		t.Fatal(err)
	}
	again := map[string]func(*testing.T, *testHub, string) error{
		"renewals": renewal,
		"joins":    func(t *testing.T, h *testHub, dir string) error { return rejoin(t, h, line, dir, "") },
	}
	for name, ask := range again {
		t.Run(name, func(t *testing.T) {
			a := startAgent(t, agentSpec{join: token.Join})
			a.stop()
			var err error
			for range 100 {
				if err = ask(t, h, a.dir); err != nil {
					break
				}
			}
			if f := wantFault(t, err, fault.CodeLimit); !strings.Contains(f.Next, "served again in") {
				t.Errorf("no next step: %v", f)
			}
		})
	}
	startAgent(t, agentSpec{join: token.Join})
}
