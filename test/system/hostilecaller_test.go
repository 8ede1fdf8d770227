// SPDX-License-Identifier: Apache-2.0

package system

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// Callers who ask for a target and hang up before, while and after they are
// answered, with an end in order or by a reset: what they have begun ends, at the
// hub, at the agent and at the target.
func TestCallersWhoHangUp(t *testing.T) {
	s := besieged(t)
	startAgent(t, agentSpec{join: s.token("c1").Join})
	client := s.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	path, to := s.socket("c1", hub.ProtocolConnect), runtest.Echo(t)
	request := fmt.Sprintf("CONNECT %s HTTP/1.1\r\n\r\n", to.Addr())
	s.begin()
	for name, dial := range map[string]func() (net.Conn, error){
		"unix": func() (net.Conn, error) { return net.Dial("unix", path) },
		"tls":  func() (net.Conn, error) { return net.Dial("tcp", s.listen) },
	} {
		s.during(func() error {
			for i := range times(manyHandshakes) {
				raw, err := dial()
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				conn := raw
				if name == "tls" {
					conn = tls.Client(raw, anyHub(&client.Certificate))
				}
				switch i % 4 {
				case 0:
					io.WriteString(conn, request[:len(request)/2])
				case 1, 2:
					io.WriteString(conn, request)
				case 3:
					io.WriteString(conn, request)
					io.ReadFull(conn, make([]byte, 12))
					io.WriteString(conn, "some bytes that come back")
				}
				if tcp, ok := raw.(*net.TCPConn); ok && i%2 == 0 {
					tcp.SetLinger(0) // a reset
				}
				raw.Close()
			}
			return nil
		})
	}
	s.holds(32 << 20)
	s.costs(2*times(manyHandshakes), 30)
	s.lifted()
}

// Guessed tokens are refused one by one: each costs a handshake and a look, nobody
// learns whether the cluster is there, and the token that is there goes on.
func TestFloodOfGuessedTokens(t *testing.T) {
	s := besieged(t)
	good, err := trust.ParseJoin(s.token("c1").Join)
	if err != nil {
		t.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := trust.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	s.begin()
	s.during(func() error {
		for i := range times(manyHandshakes) {
			guess := admin.JoinRequest{TokenID: good.TokenID, Secret: fmt.Sprintf("%032d", i), CSR: string(csr)}
			if i%2 == 0 {
				guess.TokenID = fmt.Sprintf("%08d", i)
			}
			if i%10 == 0 {
				guess.Secret = strings.Repeat("x", 8<<10)
			}
			_, err := postJoin(runtest.Within(t), s.listen, "/v1/join", guess, anyHub(nil, trust.ALPNJoin))
			if err == nil || fault.From(err).Code == fault.CodeInternal {
				return fmt.Errorf("guess %d: %v", i, err)
			}
		}
		return nil
	})
	s.holds(16 << 20)
	s.costs(times(manyHandshakes), 60)
	right := admin.JoinRequest{TokenID: good.TokenID, Secret: good.Secret, CSR: string(csr)}
	if _, err := postJoin(runtest.Within(t), s.listen, "/v1/join", right, anyHub(nil, trust.ALPNJoin)); err != nil {
		t.Errorf("the token itself: %v", err)
	}
	s.lifted()
}
