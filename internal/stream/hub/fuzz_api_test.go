// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
)

// asked gives a request as net/http would hand it over, nil if it would not.
func asked(raw []byte) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil || len(raw) > limit.AdminBody+limit.RequestHeader {
		return nil
	}
	return r
}

// request renders one.
func request(method, target, body string) []byte {
	var b bytes.Buffer
	r := httptest.NewRequest(method, "http://hub"+target, strings.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Write(&b)
	return b.Bytes()
}

// answered wants an answer of ours: JSON, and a coded fault unless it is 200. It
// gives what a 200 says.
func answered(t *testing.T, w *httptest.ResponseRecorder) json.RawMessage {
	t.Helper()
	if w.Code == http.StatusMovedPermanently || w.Code == http.StatusTemporaryRedirect || w.Code == http.StatusMethodNotAllowed {
		return nil // net/http's own, for a path with dots or a method
	}
	dec := json.NewDecoder(w.Body)
	var out json.RawMessage
	if err := dec.Decode(&out); err != nil || dec.More() {
		t.Fatalf("%d with a body that is not one JSON value: %v", w.Code, err)
	}
	if w.Code == http.StatusOK {
		return out
	}
	var b admin.FaultBody
	if err := json.Unmarshal(out, &b); err != nil || b.Code == "" || b.What == "" || b.Code == string(fault.CodeInternal) {
		t.Errorf("%d %s: %v", w.Code, out, err)
	}
	if got := w.Header().Get("Tombolo-Fault"); got != b.Code || w.Code != statusOf(b.Fault()) {
		t.Errorf("%d with the fault %q in its header, %q in its body", w.Code, got, b.Code)
	}
	return nil
}

// FuzzAPI asks the admin API anything. It answers with JSON, and what it has made
// is within its bounds.
func FuzzAPI(f *testing.F) {
	key, err := trust.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	csr, err := trust.NewCSR(key)
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(string(csr))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range [][3]string{
		{"GET", "/v1/status", ""}, {"GET", "/v1/status?cluster=c1", ""}, {"GET", "/v1/status?cluster=%00", ""}, {"GET", "/v1/tokens", ""},
		{"POST", "/v1/tokens", `{"cluster":"c1","ttlSeconds":60,"uses":1}`}, {"POST", "/v1/tokens", `{"cluster":"c1","ttlSeconds":9223372036854775807,"uses":-1}`},
		{"DELETE", "/v1/tokens/aaaaaaaa", ""}, {"POST", "/v1/certificates", `{"role":"client","cluster":"c1","name":"kas","csr":` + string(text) + `}`},
		{"POST", "/v1/certificates", `{"role":"hub","name":"h","csr":` + string(text) + `}`}, {"GET", "/v1/certificates", ""},
		{"GET", "/v1/clusters", ""}, {"DELETE", "/v1/clusters/c9", ""},
		{"POST", "/v1/revocations", `{"role":"agent","cluster":"c1","name":"a1"}`}, {"POST", "/v1/clusters/c1/sockets", `{"protocol":"none"}`}, {"POST", "/v1/clusters/c1/ping", ""},
		{"GET", "/v1/clusters/c1/explain?target=10.0.0.1:443", ""}, {"GET", "/v1/clusters/..%2f/stream?target=x", ""}, {"GET", "/v1/nothing", ""},
		{"POST", "/v1/clusters/c1/wireguard", `{"mode":"on"}`}, {"POST", "/v1/clusters/c1/wireguard", `{"publicKey":"x"}`}, {"POST", "/v1/clusters/c1/wireguard/side", ""},
		{"GET", "/v1/clusters/c1/export", ""}, {"GET", "/v1/wireguard/endpoints/e1?version=x", ""},
		{"POST", "/v1/import", `{"cluster":"c1","wireguard":{"mode":"on","address":"192.168.128.16"}}`},
	} {
		f.Add(request(s[0], s[1], s[2]))
	}
	h := bareHub(f)
	c1, err := id.ParseCluster("c1")
	if err != nil {
		f.Fatal(err)
	}
	h.advertise = []string{"hub.example:8443"}
	h.clusters.add(c1)
	ctx, cancel := context.WithCancel(context.Background())
	h.sockets = frontend.NewSockets(ctx, h.cfg.RunDir, h.front.bindSocket, h.log)
	f.Cleanup(func() { cancel(); h.sockets.Wait() })
	api := h.api.apiHandler()
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := asked(raw)
		if r == nil || r.RequestURI == "*" || strings.HasSuffix(r.URL.Path, "/backup") {
			return // net/http answers the one itself, and the other is no JSON
		}
		if r.URL.Path == "/v1/import" && strings.Contains(string(raw), "inherit") {
			return // nor does the state grow for each input
		}
		if strings.HasSuffix(r.URL.Path, "/sockets") && strings.Contains(string(raw), "con") {
			return // a real socket for each input is too much
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		out := answered(t, w)
		if out == nil {
			return
		}
		switch r.URL.Path {
		case "/v1/tokens":
			h.judgeToken(t, r, out)
		case "/v1/certificates":
			h.judgeCertificate(t, r, out)
		}
	})
}

func (h *Hub) judgeToken(t *testing.T, r *http.Request, out []byte) {
	t.Helper()
	var made admin.Token
	if err := json.Unmarshal(out, &made); r.Method != http.MethodPost || err != nil {
		return
	}
	j, err := trust.ParseJoin(made.Join)
	life := time.Until(made.Expires)
	if err != nil || j.Cluster.String() != made.Cluster || life > limit.TokenTTLMost || life < -time.Minute || made.Uses < 1 || made.Uses > tokenUses {
		t.Errorf("a token %+v: %v", made, err)
	}
	if err := h.state.DeleteToken(made.ID); err != nil { // a state that grows for each input slows down
		t.Errorf("it cannot be deleted: %v", err)
	}
}

func (h *Hub) judgeCertificate(t *testing.T, r *http.Request, out []byte) {
	t.Helper()
	var made admin.Certificate
	if err := json.Unmarshal(out, &made); r.Method != http.MethodPost || err != nil {
		return
	}
	certs, err := trust.ParseCertificates([]byte(made.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	who, err := h.credentials.Verify(certs, 0)
	if err != nil || who.URI() != made.Identity || who.Role != id.RoleClient && who.Role != id.RoleOperator && who.Role != id.RoleEdge {
		t.Errorf("a certificate for %v: %v", who, err)
	}
}

// FuzzJoin asks the enrolment port anything, without a certificate and as an agent whose
// certificate is good. Nobody gets another identity than the token's or its own.
func FuzzJoin(f *testing.F) {
	h := bareHub(f)
	c1, err := id.ParseCluster("c1")
	if err != nil {
		f.Fatal(err)
	}
	// Each process that fuzzes makes its own hub: an input has to fit all of them.
	secret := strings.Repeat("s", 32)
	hash := sha256.Sum256([]byte(secret))
	token := trust.Token{ID: "tttttttt", Cluster: "c1", SecretHash: hex.EncodeToString(hash[:]), Expires: time.Now().Add(time.Hour), Uses: tokenUses}
	key, err := trust.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	csr, err := trust.NewCSR(key)
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := h.credentials.CA().Issue(trust.Request{Identity: id.Identity{Role: id.RoleAgent, Cluster: c1, Name: "a1"}, Key: key.Public(), Life: time.Hour}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	if err := h.state.PutToken(token, time.Now()); err != nil {
		f.Fatal(err)
	}
	for _, body := range []admin.JoinRequest{
		{TokenID: token.ID, Secret: secret, CSR: string(csr)}, {TokenID: token.ID, Secret: secret, Cluster: "c2", CSR: string(csr)},
		{TokenID: token.ID, Secret: secret, Cluster: "c1", CSR: "none"}, {TokenID: "aaaaaaaa", Secret: secret, CSR: string(csr)}, {},
	} {
		text, err := json.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(request("POST", "/v1/join", string(text)), false)
		f.Add(request("POST", "/v1/renew", string(text)), true)
	}
	renewal, err := json.Marshal(admin.RenewRequest{CSR: string(csr)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(request("POST", "/v1/renew", string(renewal)), true)
	f.Add(request("POST", "/v1/renew", string(renewal)), false)
	f.Add(request("POST", "/v1/join", "{} {}"), false)
	handler := h.join.joinHandler()
	f.Fuzz(func(t *testing.T, raw []byte, agent bool) {
		r := asked(raw)
		if r == nil || r.URL.Path != "/v1/join" && r.URL.Path != "/v1/renew" || r.Method != http.MethodPost {
			return
		}
		if agent {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, []*x509.Certificate{leaf}))
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		out := answered(t, w)
		if out == nil {
			return
		}
		var a admin.JoinAnswer
		if err := json.Unmarshal(out, &a); err != nil {
			t.Fatal(err)
		}
		certs, err := trust.ParseCertificates([]byte(a.Certificate))
		if err != nil {
			t.Fatal(err)
		}
		who, err := h.credentials.Verify(certs, 0)
		if err != nil || who.Role != id.RoleAgent || who.Cluster != c1 || who.Name != a.Agent || a.Cluster != "c1" {
			t.Errorf("%s made %v of %+v, %v", r.URL.Path, who, a, err)
		}
		if r.URL.Path == "/v1/renew" && (!agent || who.Name != "a1") {
			t.Errorf("renewed to %v", who)
		}
		if r.URL.Path == "/v1/join" && (who.Name == "a1" || !bytes.Contains(raw, []byte(secret)) && !bytes.Contains(raw, []byte(`\u`))) {
			t.Errorf("joined as %v", who)
		}
	})
}
