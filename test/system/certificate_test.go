// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// logged waits until an entry of that message carries the code.
func logged(t *testing.T, j *journal, message string, code fault.Code) map[string]any {
	t.Helper()
	var found map[string]any
	runtest.Eventually(t, string(code)+" in the log under "+message, func() bool {
		for _, r := range j.records(message) {
			if r["code"] == string(code) {
				found = r
			}
		}
		return found != nil
	})
	return found
}

// Renewal replaces the session, and a stream on the old one goes on.
func TestRenewalDropsNoStream(t *testing.T) {
	h, a := pair(t, hubSpec{extra: "certificates: {agentLife: 3s}"}, agentSpec{})
	to := runtest.Echo(t)
	conn := mustConnect(t, h, to)
	defer conn.Close()
	first := h.status("c1").Agents[0]
	for round := range 2 {
		runtest.Eventually(t, "another renewal", func() bool {
			mustEcho(t, conn, "during the renewal")
			return len(a.log.records("certificate renewed")) > round
		})
	}
	runtest.Eventually(t, "a session with a newer certificate", func() bool {
		for _, ag := range h.status("c1").Agents {
			if ag.Connected && !ag.Draining && ag.CertificateEnd.After(first.CertificateEnd.Add(2*time.Second)) {
				return ag.ID == first.ID
			}
		}
		return false
	})
	mustEcho(t, conn, "still on the first session")
	fresh := mustConnect(t, h, to)
	mustEcho(t, fresh, "on the new one")
	fresh.Close()
	if !a.Ready() {
		t.Error("the agent is not ready")
	}
	conn.Close()
	runtest.Eventually(t, "the old sessions end with their streams", func() bool {
		for _, ag := range h.status("c1").Agents {
			if ag.Streams > 0 {
				return false
			}
		}
		return h.connected("c1") <= 2
	})
}

// A certificate that ran out within the grace is renewed, and good for nothing else.
func TestExpiredCertificateMayRenewAndNothingElse(t *testing.T) {
	var c clock
	h := startHub(t, hubSpec{now: c.now})
	a := startAgent(t, agentSpec{join: h.token("c1").Join, now: c.now})
	name := h.status("c1").Agents[0].ID
	a.stop()
	old := h.enrol(h.token("c1").Join)
	c.forward(25 * time.Hour)

	refusal := greet(t, h.dialTLS(&old.Certificate, trust.ALPNSession), hello("late")).GetRefusal()
	if refusal.GetCode() != string(fault.CodeCertExpired) || !strings.Contains(refusal.GetWhy(), "it expired at") {
		t.Errorf("session with an expired certificate: %v", refusal)
	}
	_, err := connectOver(runtest.Within(t), h.dialTLS(&old.Certificate), "10.0.0.1:80")
	wantRefused(t, err, http.StatusUnauthorized, fault.CodeCertExpired)

	startAgent(t, agentSpec{dir: a.dir, now: c.now})
	if ag := h.status("c1").Agents; len(ag) != 1 || ag[0].ID != name || !ag[0].CertificateEnd.After(c.now()) {
		t.Errorf("after the renewal: %+v", ag)
	}
}

func TestCertificateBeyondTheGraceIsRefused(t *testing.T) {
	var c clock
	h := startHub(t, hubSpec{now: c.now, extra: "certificates: {renewGrace: 2h}"})
	a := startAgent(t, agentSpec{join: h.token("c1").Join, now: c.now})
	a.stop()
	c.forward(24*time.Hour + 3*time.Hour)
	late := runAgent(t, agentSpec{dir: a.dir, now: c.now})
	r := logged(t, late.log, "certificate not renewed", fault.CodeCertExpired)
	if !strings.Contains(r["reason"].(string), "tombolo token create") {
		t.Errorf("no next step: %v", r)
	}
	if late.Ready() {
		t.Error("it has a session all the same")
	}
}

// An hour ahead is nothing; an hour behind, the hub's fresh certificate is not
// valid yet, and the agent says that it is the clock.
func TestClockAnHourOff(t *testing.T) {
	h := startHub(t, hubSpec{})
	to := runtest.Echo(t)
	var ahead, behind clock
	ahead.forward(time.Hour)
	behind.forward(-time.Hour)
	a := startAgent(t, agentSpec{join: h.token("c1").Join, now: ahead.now})
	conn, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, conn, "an hour ahead")
	conn.Close()
	if len(a.log.records("this machine's clock differs from the hub's")) == 0 {
		t.Error("the agent does not warn of its clock")
	}

	f := mustEnd(t, runAgent(t, agentSpec{join: h.token("c1").Join, now: behind.now}), fault.CodeClockSkew)
	if !strings.Contains(f.Explain(), "date -u") || !strings.Contains(f.Why, "it is valid from") {
		t.Errorf("unclear: %s", f.Explain())
	}

	// The clock of an agent that has joined goes wrong and is set right again.
	a.stop()
	again := runAgent(t, agentSpec{dir: a.dir, now: behind.now})
	logged(t, again.log, "not connected", fault.CodeClockSkew)
	behind.forward(time.Hour)
	runtest.Eventually(t, "it connects with the right clock", again.Ready)
}

// The same from the hub's side: its clock is wrong, and the agent learns why.
func TestClockOfTheHubAnHourOff(t *testing.T) {
	var c clock
	h := startHub(t, hubSpec{now: c.now})
	a := startAgent(t, agentSpec{join: h.token("c1").Join})
	a.stop()
	c.forward(-time.Hour)
	again := runAgent(t, agentSpec{dir: a.dir})
	logged(t, again.log, "not connected", fault.CodeClockSkew)
	c.forward(time.Hour)
	runtest.Eventually(t, "it connects with the right clock", again.Ready)
	again.stop()
	c.forward(time.Hour)
	// Now an hour ahead, with a certificate from before: all is well but for a warning.
	late := startAgent(t, agentSpec{join: h.token("c1").Join})
	if len(late.log.records("this machine's clock differs from the hub's")) == 0 {
		t.Error("the agent does not warn of the clocks")
	}
	// A hub that starts with such a clock makes a certificate of the future.
	ahead := startHub(t, hubSpec{now: c.now})
	f := mustEnd(t, runAgent(t, agentSpec{join: ahead.token("c1").Join}), fault.CodeClockSkew)
	if !strings.Contains(f.Next, "date -u") {
		t.Errorf("unclear: %s", f.Explain())
	}
}

// A revoked client is refused, and its live connections end at once; another
// client of the same cluster is not touched.
func TestRevokedClient(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	bad := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "bad"})
	good := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "good"})
	live, err := h.dialConnectTLS(runtest.Within(t), bad, to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	other, err := h.dialConnectTLS(runtest.Within(t), good, to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	h.revoke("client", bad.serial)
	if _, err := io.ReadAll(live); isTimeout(err) {
		t.Error("the live connection of the revoked client goes on")
	}
	_, err = h.dialConnectTLS(runtest.Within(t), bad, to.Addr())
	wantRefused(t, err, http.StatusUnauthorized, fault.CodeCertRevoked)
	mustEcho(t, other, "the other client")

	// The revocation outlives the hub.
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	next := startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	_, err = next.dialConnectTLS(runtest.Within(t), bad, to.Addr())
	wantRefused(t, err, http.StatusUnauthorized, fault.CodeCertRevoked)
}

// A revoked operator loses its streams and its kept-alive connections too.
func TestRevokedOperator(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	op := h.issue(admin.CertificateRequest{Role: "operator", Name: "alice"})
	remote := h.operator(op)
	live, err := remote.Stream(runtest.Within(t), "c1", to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	mustEcho(t, live, "before")
	kept := h.dialTLS(&op.Certificate, "http/1.1")
	head := "GET /v1/status HTTP/1.1\r\nHost: hub\r\n\r\n"
	io.WriteString(kept, head)
	if n, err := kept.Read(make([]byte, 12)); n != 12 || err != nil {
		t.Fatal(n, err)
	}
	h.revoke("operator", op.serial)
	live.SetReadDeadline(time.Now().Add(runtest.Patience))
	if _, err := io.ReadAll(live); isTimeout(err) {
		t.Error("the stream of the revoked operator goes on")
	}
	kept.SetReadDeadline(time.Now().Add(runtest.Patience))
	io.WriteString(kept, head)
	if _, err := io.Copy(io.Discard, kept); isTimeout(err) {
		t.Error("the kept-alive connection of the revoked operator goes on")
	}
	var st admin.Status
	wantFault(t, remote.Call(runtest.Within(t), "GET", "/v1/status", nil, &st), fault.CodeCertRevoked)
}

// operator is a client of the admin API over the main port.
func (h *testHub) operator(c certificate) *admin.Client {
	check := func() trust.Check { return trust.Check{Roots: trust.RootsOf(c.ca), Now: time.Now()} }
	return admin.OverTLS(h.listen, trust.HubClientConfig(check, &c.Certificate, "http/1.1"), splice.Below)
}

// kube-apiserver loads its certificate once: status warns before its end, a
// metric carries it, and after it the refusal says what happened.
func TestEndOfAClientCertificate(t *testing.T) {
	var c clock
	h := startHub(t, hubSpec{now: c.now})
	h.token("c1")
	cert := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	warnings := func() string {
		var st admin.Status
		h.call("GET", "/v1/status", nil, &st)
		return strings.Join(st.Warnings, "\n")
	}
	if w := warnings(); w != "" {
		t.Errorf("early: %q", w)
	}
	if end := gauge(t, h.reg, "tombolo_hub_client_certificate_expiry_timestamp_seconds"); int64(end) != cert.Leaf.NotAfter.Unix() {
		t.Errorf("the metric says %v, the certificate %v", end, cert.Leaf.NotAfter.Unix())
	}
	c.forward(340 * 24 * time.Hour)
	if w := warnings(); !strings.Contains(w, cert.serial) || !strings.Contains(w, "restart kube-apiserver") {
		t.Errorf("before the end: %q", w)
	}
	c.forward(30 * 24 * time.Hour)
	if w := warnings(); !strings.Contains(w, "has ended") {
		t.Errorf("after the end: %q", w)
	}
	_, err := connectOver(runtest.Within(t), h.dialTLS(&cert.Certificate), "10.0.0.1:80")
	wantRefused(t, err, http.StatusUnauthorized, fault.CodeCertExpired)
}

// A resumed TLS session is judged again: revocation is not forgotten with a
// ticket, and the end of a certificate neither.
func TestResumedSessionIsCheckedAgain(t *testing.T) {
	var c clock
	h, _ := pair(t, hubSpec{now: c.now, extra: "certificates: {clientLife: 1h}"}, agentSpec{})
	to := runtest.Echo(t)
	for _, w := range []struct {
		name    string
		later   func(serial string)
		resumed bool // a ticket with a certificate that has run out is not even taken
		want    fault.Code
	}{
		{"revoked", func(serial string) { h.revoke("client", serial) }, true, fault.CodeCertRevoked},
		{"run out", func(string) { c.forward(2 * time.Hour) }, false, fault.CodeCertExpired},
	} {
		cert := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
		cfg := cert.clientTLS(h.listen)
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(8)
		dial := func(resumed bool) (net.Conn, error) {
			conn, err := (&tls.Dialer{Config: cfg}).DialContext(runtest.Within(t), "tcp", h.listen)
			if err != nil {
				t.Fatal(err)
			}
			closing(t, conn)
			if got := conn.(*tls.Conn).ConnectionState().DidResume; got != resumed {
				t.Errorf("%s: resumed=%v, want %v", w.name, got, resumed)
			}
			return connectOver(context.Background(), conn, to.Addr())
		}
		for _, resumed := range []bool{false, true, true} {
			conn, err := dial(resumed)
			if err != nil {
				t.Fatal(err)
			}
			mustEcho(t, conn, "reads the ticket on the way")
		}
		w.later(cert.serial)
		_, err := dial(w.resumed)
		wantRefused(t, err, http.StatusUnauthorized, w.want)
	}
}

// A connection that is kept does not outlive its operator's certificate.
func TestExpiredOperatorOnAKeptConnection(t *testing.T) {
	var c clock
	h := startHub(t, hubSpec{now: c.now})
	op := h.issue(admin.CertificateRequest{Role: "operator", Name: "alice"})
	kept := h.dialTLS(&op.Certificate, "http/1.1")
	answers := bufio.NewReader(kept)
	for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		kept.SetDeadline(time.Now().Add(runtest.Patience))
		io.WriteString(kept, "GET /v1/status HTTP/1.1\r\nHost: hub\r\n\r\n")
		res, err := http.ReadResponse(answers, nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%v, %v, want %d", res, err, want)
		}
		io.Copy(io.Discard, res.Body)
		c.forward(2 * limit.ClientCertificate)
	}
}
