// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// httpDoors are all listeners that read a header: the doors for callers, the
// enrolment, and both ways to the admin API.
func (s *siege) httpDoors() map[string]func() (net.Conn, error) {
	s.token("c1")
	path, adminPath := s.socket("c1", hub.ProtocolConnect), hub.AdminSocket(s.cfg.RunDir)
	client := s.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	operator := s.issue(admin.CertificateRequest{Role: "operator", Name: "o"})
	over := func(cfg *tls.Config) func() (net.Conn, error) {
		return func() (net.Conn, error) { return tls.Dial("tcp", s.listen, cfg) }
	}
	return map[string]func() (net.Conn, error){
		"connect-unix": func() (net.Conn, error) { return net.Dial("unix", path) },
		"connect-tls":  over(anyHub(&client.Certificate)),
		"enrolment":    over(anyHub(nil, trust.ALPNJoin)),
		"admin-tls":    over(anyHub(&operator.Certificate)),
		"nobody":       over(anyHub(nil)),
		"admin-socket": func() (net.Conn, error) { return net.Dial("unix", adminPath) },
		"probes": func() (net.Conn, error) {
			return tls.Dial("tcp", strings.TrimPrefix(s.adminURL, "https://"), anyHub(nil))
		},
	}
}

// A header that grows and grows is cut at its bound, on every listener.
func TestHeaderBombs(t *testing.T) {
	s := besieged(t)
	doors := s.httpDoors()
	s.begin()
	junk := []byte("X-Bomb: " + strings.Repeat("x", 1000) + "\r\n")
	for name, door := range doors {
		for shape, bomb := range map[string][]byte{"many": junk, "one": bytes.Repeat([]byte("x"), 1000)} {
			s.during(func() error {
				conn, err := door()
				if err != nil {
					return err
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(runtest.Patience))
				io.WriteString(conn, "CONNECT 10.0.0.1:80 HTTP/1.1\r\nX: ")
				taken := 0
				for taken < bombBytes && err == nil {
					_, err = conn.Write(bomb)
					taken += len(bomb)
				}
				if taken >= bombBytes || !cut(err) {
					s.t.Errorf("%s, %s: %d bytes of a header were taken", name, shape, taken)
				}
				return nil
			})
		}
	}
	s.holds(16 << 20)
	s.costs(2*len(doors), 200) // what fits into the buffers of a connection is written in vain
	s.lifted()
}

// Callers who send a byte now and then, on every listener, keep nobody else
// waiting, whatever they have begun.
func TestSlowCallersOnEveryListener(t *testing.T) {
	s := besieged(t)
	doors := s.httpDoors()
	s.begin()
	var slow []net.Conn
	s.during(func() error {
		for name, door := range doors {
			for i := range manySlow {
				conn, err := door()
				if err != nil {
					return errors.Join(errors.New(name), err)
				}
				slow = append(slow, conn)
				io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: h"[:i%30])
			}
		}
		return nil
	})
	for i := range 3 { // a byte each, three times
		s.during(func() error {
			for _, conn := range slow {
				conn.Write([]byte("xyz")[i : i+1])
			}
			return nil
		})
	}
	s.holds(64 << 20)
	s.costs(len(slow), 30)
	for _, conn := range slow {
		conn.Close()
	}
	s.lifted()
}
