// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/packet"
)

// rawCodec carries bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// kepStream is a connection by the KEP's own protocol.
type kepStream struct {
	net.Conn // none
	grpc.ClientStream
	rest []byte
	end  func()
}

func (s *kepStream) say(p packet.Payload) error {
	raw := p.Append(nil)
	return s.SendMsg(&raw)
}

func (s *kepStream) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		piece := b[n:min(len(b), n+64<<10)]
		err = s.say(packet.Payload{Data: piece})
		n += len(piece)
	}
	return n, err
}

func (s *kepStream) Read(b []byte) (int, error) {
	for len(s.rest) == 0 {
		var raw []byte
		if err := s.RecvMsg(&raw); err != nil {
			return 0, err
		}
		p, err := packet.ParsePayload(raw)
		if err != nil {
			return 0, err
		}
		s.rest = p.Data
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *kepStream) Close() error { s.end(); return nil }

// kep opens a connection by the KEP's own protocol.
func (p *proxy) kep(address string) (*kepStream, error) {
	p.w.Helper()
	target, creds := "unix:"+p.socket, insecure.NewCredentials()
	if p.socket == "" {
		target, creds = fmt.Sprintf("127.0.0.1:%d", p.serverPort), credentials.NewTLS(p.w.clientTLS("client"))
	}
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})),
		grpc.WithStaticStreamWindowSize(64<<10)) // or a caller that does not read is given megabytes
	p.w.must(err)
	p.w.Cleanup(func() { cc.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	p.w.Cleanup(cancel)
	ctx = metadata.AppendToOutgoingContext(ctx, "x-kube-net-proxy",
		base64.StdEncoding.EncodeToString(packet.AppendConnectOptions(nil, address)))
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/ProxyService/Proxy")
	if err == nil {
		_, err = s.Header()
	}
	if err == nil && s.Trailer().Len() > 0 {
		err = s.RecvMsg(new([]byte))
	}
	return &kepStream{ClientStream: s, end: cancel}, err
}

// TestKEP serves the KEP's own protocol on the port of the reference's, through agents of both kinds.
func TestKEP(t *testing.T) {
	t.Parallel()
	for _, f := range []fleet{{"their agent", nil, theirAgent}, {"our agent", nil, ourAgent}} {
		for _, tcp := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s tcp=%v", f.name, tcp), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				records := w.gated("")
				p := w.ours("grpc", tcp)
				f.agent(w, p.agentPort)
				p.ready()
				target := runtest.Echo(w)
				packets := p.mustDial(target.Addr())
				s, err := p.kep(target.Addr())
				w.must(err)
				echoes(w, s, 300_000)
				w.must(s.say(packet.Payload{Metadata: []reqmeta.Pair{{Key: "ticket", Value: "OPS-1"}}}))
				echoes(w, s, 10)
				echoes(w, packets, 100_000)
				s.Close()
				eventually(w, "the record with the metadata", func() bool {
					return strings.Contains(records(), `"metadata":{"ticket":"OPS-1"}`)
				})
				greets := runtest.Serve(w, func(c *net.TCPConn) {
					io.WriteString(c, "hello")
					c.Close()
				})
				s, err = p.kep(greets.Addr())
				w.must(err)
				if got, err := io.ReadAll(s); string(got) != "hello" || err != nil {
					w.Errorf("%q, %v", got, err)
				}
				s, err = p.kep(fmt.Sprintf("127.0.0.1:%d", w.ports(1)[0]))
				if err == nil {
					_, err = io.ReadAll(s)
				}
				if err == nil || !strings.Contains(err.Error(), "dial_unreachable") {
					w.Errorf("a port where nobody listens: %v", err)
				}
			})
		}
	}
}
