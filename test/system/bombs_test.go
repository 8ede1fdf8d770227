// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tombolo-io/tombolo/internal/admin"
	"github.com/tombolo-io/tombolo/internal/hub"
	"github.com/tombolo-io/tombolo/internal/runtest"
	"github.com/tombolo-io/tombolo/internal/trust"
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
	for _, conn := range slow {
		conn.Close()
	}
	s.lifted()
}

// h2 is a peer of the gRPC frontend that keeps no rule of HTTP/2.
type h2 struct {
	net.Conn
	*http2.Framer
	head bytes.Buffer
	enc  *hpack.Encoder
}

func newH2(ctx context.Context, path string) (*h2, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	h := &h2{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	h.enc = hpack.NewEncoder(&h.head)
	_, err = io.WriteString(conn, http2.ClientPreface)
	return h, errors.Join(err, h.WriteSettings(), h.WriteSettingsAck())
}

// block encodes what gRPC asks for, and more.
func (h *h2) block(more ...hpack.HeaderField) []byte {
	h.head.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/ProxyService/Proxy"},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		h.enc.WriteField(f)
	}
	return bytes.Clone(h.head.Bytes())
}

// The frontend of kube-apiserver under a caller without manners: it holds what one
// connection may hold, and the other cluster's socket is served.
func TestHostileCallerOfKonnectivity(t *testing.T) {
	open := func(h *h2, id uint32) error {
		return h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.block(), EndHeaders: true})
	}
	for name, attack := range map[string]func(h *h2) error{
		"streams opened and reset": func(h *h2) error {
			for i := range manyResets {
				if err := errors.Join(open(h, uint32(2*i+1)), h.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)); err != nil {
					return err
				}
			}
			return nil
		},
		"streams without a dial": func(h *h2) error {
			for i := range manyResets {
				if err := open(h, uint32(2*i+1)); err != nil {
					return err
				}
			}
			return nil
		},
		"pings": func(h *h2) error {
			for range manyFrames {
				if err := h.WritePing(false, [8]byte{}); err != nil {
					return err
				}
			}
			return nil
		},
		"settings": func(h *h2) error {
			for range manyFrames {
				if err := h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}); err != nil {
					return err
				}
			}
			return nil
		},
		"a header without end": func(h *h2) error {
			err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.block()})
			for n := 0; n < bombBytes && err == nil; n += 16 << 10 {
				err = h.WriteContinuation(1, false, make([]byte, 16<<10))
			}
			return err
		},
		"headers that unpack to much": func(h *h2) error {
			big := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("x", 3<<10)}
			var many []hpack.HeaderField
			for range 1000 { // each a byte on the wire, from the second on
				many = append(many, big)
			}
			for i := range manyResets / 10 {
				if err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: h.block(many...), EndHeaders: true}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := besieged(t)
			s.token("c1")
			path := s.socket("c1", hub.ProtocolKonnectivity)
			s.begin()
			h, err := newH2(runtest.Within(t), path)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			read := make(chan struct{})
			go func() { defer close(read); io.Copy(io.Discard, h.Conn) }()
			s.during(func() error {
				attack(h) // it may be cut off
				return nil
			})
			s.holds(64 << 20)
			h.Close()
			<-read
			s.lifted()
		})
	}
}
