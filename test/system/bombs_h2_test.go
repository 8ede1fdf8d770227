// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

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

// h2Attacks are what a caller without manners does on one connection.
func h2Attacks() map[string]func(h *h2) error {
	open := func(h *h2, id uint32) error {
		return h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.block(), EndHeaders: true})
	}
	return map[string]func(h *h2) error{
		"streams opened and reset": func(h *h2) error {
			for i := range times(manyResets) {
				if err := errors.Join(open(h, uint32(2*i+1)), h.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)); err != nil {
					return err
				}
			}
			return nil
		},
		"streams without a dial": func(h *h2) error {
			for i := range times(manyResets) {
				if err := open(h, uint32(2*i+1)); err != nil {
					return err
				}
			}
			return nil
		},
		"pings": func(h *h2) error {
			for range times(manyFrames) {
				if err := h.WritePing(false, [8]byte{}); err != nil {
					return err
				}
			}
			return nil
		},
		"settings": func(h *h2) error {
			for range times(manyFrames) {
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
		"headers in pieces of nothing": func(h *h2) error {
			err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.block()})
			for range times(manyFrames) {
				if err = errors.Join(err, h.WriteContinuation(1, false, nil)); err != nil {
					return err
				}
			}
			return nil
		},
		"windows that overflow": func(h *h2) error {
			err := open(h, 1)
			for range times(manyResets) {
				if err = errors.Join(err, h.WriteWindowUpdate(1, 1<<31-1), h.WriteWindowUpdate(0, 1<<31-1)); err != nil {
					return err
				}
			}
			return nil
		},
		"more data than the window": func(h *h2) error {
			err := open(h, 1)
			for range times(manyResets) {
				if err = errors.Join(err, h.WriteData(1, false, make([]byte, 16<<10))); err != nil {
					return err
				}
			}
			return nil
		},
		"messages that are never finished": func(h *h2) error {
			most := binary.BigEndian.AppendUint32([]byte{0}, limit.KonnectivityPacket)
			for i := range times(manyResets) {
				id := uint32(2*i + 1)
				if err := errors.Join(open(h, id), h.WriteData(id, false, append(most, make([]byte, 8<<10)...))); err != nil {
					return err
				}
			}
			return nil
		},
		"ids that were used": func(h *h2) error {
			for range times(manyResets) {
				if err := errors.Join(open(h, 7), h.WriteRSTStream(7, http2.ErrCodeCancel), open(h, 5)); err != nil {
					return err
				}
			}
			return nil
		},
		"frames of every kind and length": func(h *h2) error {
			h.AllowIllegalWrites = true
			for n := 0; n < 16<<10; n += max(1, n/8) {
				for kind := range http2.FrameType(16) {
					if err := h.WriteRawFrame(kind, http2.Flags(n), uint32(n), make([]byte, n)); err != nil {
						return err
					}
				}
			}
			return nil
		},
		"headers that unpack to much": func(h *h2) error {
			big := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("x", 3<<10)}
			var many []hpack.HeaderField
			for range 1000 { // each a byte on the wire, from the second on
				many = append(many, big)
			}
			for i := range times(manyResets) / 10 {
				if err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: h.block(many...), EndHeaders: true}); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// The frontend of kube-apiserver under a caller without manners: it holds what one
// connection may hold, and the other cluster's socket is served.
func TestHostileCallerOfKonnectivity(t *testing.T) {
	for name, attack := range h2Attacks() {
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
			s.costs(times(manyResets), 20)
			h.Close()
			<-read
			s.lifted()
		})
	}
}

// HTTP/2, with all that can be done with it, is spoken on the sockets for
// kube-apiserver's GRPC mode and nowhere else: no port agrees on it, and no listener
// takes its preface.
func TestHTTP2IsSpokenOnKonnectivitySocketsOnly(t *testing.T) {
	s := besieged(t)
	doors := s.httpDoors()
	s.begin()
	for name, address := range map[string]string{"main port": s.listen, "admin port": strings.TrimPrefix(s.adminURL, "https://")} {
		conn, err := (&tls.Dialer{Config: anyHub(nil, "h2")}).DialContext(runtest.Within(t), "tcp", address)
		if err == nil {
			t.Errorf("%s: agreed on %q", name, conn.(*tls.Conn).ConnectionState().NegotiatedProtocol)
			conn.Close()
		}
		both, err := (&tls.Dialer{Config: anyHub(nil, "h2", "http/1.1")}).DialContext(runtest.Within(t), "tcp", address)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := both.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("%s: agreed on %q", name, got)
		}
		both.Close()
	}
	for name, door := range doors {
		s.during(func() error {
			conn, err := door()
			if err != nil {
				return err
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(runtest.Patience))
			io.WriteString(conn, http2.ClientPreface)
			framer := http2.NewFramer(conn, nil)
			framer.WriteSettings()
			answer, err := io.ReadAll(conn)
			if !cut(err) || len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(answer, []byte("HTTP/1.1 505")) {
				s.t.Errorf("%s answers the preface with %.60q, %v", name, answer, err)
			}
			return nil
		})
	}
	s.holds(16 << 20)
	s.lifted()
}
