// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
	pb "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/packet"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// exchange writes what a caller with one dial says, frame by frame.
func exchange(f *testing.F, packets ...*pb.Packet) []byte {
	f.Helper()
	messages := make([][]byte, len(packets))
	for i, p := range packets {
		var err error
		if messages[i], err = proto.Marshal(p); err != nil {
			f.Fatal(err)
		}
	}
	return exchangeOf(f, nil, messages...)
}

// exchangeOf is exchange with further metadata and any messages.
func exchangeOf(f *testing.F, more [][2]string, messages ...[]byte) []byte {
	f.Helper()
	var out, head bytes.Buffer
	out.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&out, nil)
	enc := hpack.NewEncoder(&head)
	for _, h := range append([][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/ProxyService/Proxy"}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	}, more...) {
		enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	err := errors.Join(fr.WriteSettings(), fr.WriteSettingsAck(),
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	for i, raw := range messages {
		message := append([]byte{0, 0, 0, byte(len(raw) >> 8), byte(len(raw))}, raw...)
		err = errors.Join(err, fr.WriteData(1, i == len(messages)-1, message))
	}
	if err := errors.Join(err, fr.WritePing(false, [8]byte{1}), fr.WriteRSTStream(1, http2.ErrCodeCancel)); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}

// FuzzFrontend says anything to the frontend of kube-apiserver, from its first
// byte on. The connection ends, and with it whatever was dialled.
func FuzzFrontend(f *testing.F) {
	dial := &pb.Packet{Type: pb.PacketType_DIAL_REQ, Payload: &pb.Packet_DialRequest{DialRequest: &pb.DialRequest{Protocol: "tcp", Address: "echo:1", Random: 7}}}
	refused := &pb.Packet{Type: pb.PacketType_DIAL_REQ, Payload: &pb.Packet_DialRequest{DialRequest: &pb.DialRequest{Protocol: "tcp", Address: "refused:1", Random: 7}}}
	data := &pb.Packet{Type: pb.PacketType_DATA, Payload: &pb.Packet_Data{Data: &pb.Data{ConnectID: 1, Data: []byte("hello")}}}
	over := &pb.Packet{Type: pb.PacketType_CLOSE_REQ, Payload: &pb.Packet_CloseRequest{CloseRequest: &pb.CloseRequest{ConnectID: 1}}}
	f.Add(exchange(f, dial, data, over))
	f.Add(exchange(f, dial, dial))
	f.Add(exchange(f, refused, data))
	f.Add(exchange(f, data))
	kep := [][2]string{{headTarget, named("echo:1")}}
	f.Add(exchangeOf(f, kep, packet.Payload{Data: []byte("hello")}.Append(nil), packet.Payload{
		Metadata: []reqmeta.Pair{{Key: "a", Value: "b"}}}.Append(nil)))
	f.Add(exchangeOf(f, kep, []byte{0xff}))
	f.Add(exchangeOf(f, [][2]string{{headTarget, named("refused:1")}}))
	f.Add([]byte(http2.ClientPreface))
	f.Add([]byte("CONNECT x:1 HTTP/1.1\r\n\r\n"))

	ln, err := net.Listen("unix", filepath.Join(f.TempDir(), "k.sock"))
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	targets := &echoes{}
	go func() { served <- konnectivity.New(slog.New(slog.DiscardHandler)).Serve(ctx, ln, targets.dial) }()
	f.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			f.Errorf("Serve: %v", err)
		}
		targets.over(f)
	})
	f.Fuzz(func(t *testing.T, said []byte) {
		conn, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(bound))
		answer := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, conn)
			answer <- err
		}()
		conn.Write(said) // it may have been refused before its end
		conn.(*net.UnixConn).CloseWrite()
		var timeout net.Error
		if err := <-answer; errors.As(err, &timeout) && timeout.Timeout() {
			t.Error("the connection does not end")
		}
		targets.over(t)
	})
}

// echoes are the targets of a fuzzed frontend.
type echoes struct{ live atomic.Int64 }

// over waits until all have ended.
func (e *echoes) over(t testing.TB) {
	t.Helper()
	runtest.Eventually(t, "every target has ended", func() bool { return e.live.Load() == 0 })
}

func (e *echoes) dial(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
	if d.Address != "echo:1" {
		return nil, fault.New(fault.CodeDialRefused, "refused")
	}
	a, b := net.Pipe()
	near, err := carrier.Server(a, carrier.Options{Incoming: 1})
	if err != nil {
		return nil, err
	}
	far, err := carrier.Client(b, carrier.Options{Incoming: 1})
	if err != nil {
		return nil, err
	}
	stream, err := near.OpenStream(ctx, []byte{})
	var s carrier.Stream
	if err == nil {
		s, err = far.AcceptStream(ctx) // before the caller can end it: one that is reset unsent never arrives
	}
	if err != nil {
		near.Close()
		far.Close()
		return nil, err
	}
	e.live.Add(1)
	go func() {
		defer e.live.Add(-1)
		defer near.Close()
		defer far.Close()
		s.SetDeadline(time.Now().Add(bound))
		io.Copy(s, struct{ io.Reader }{s})
		s.Close()
		io.Copy(io.Discard, s)
	}()
	return stream, nil
}
