// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	pb "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// TestMalformed: each abuse has its answer and touches nobody else, not even on
// the same gRPC connection.
func TestMalformed(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	witness := call(t, conn, proxy)
	id := witness.open("echo:1")
	for _, c := range []struct {
		name string
		do   func(c *caller)
		code codes.Code
		text string
	}{
		{"garbage first", func(c *caller) { c.send([]byte{0xff, 0xff, 0xff}) }, codes.Internal, "frame_invalid"},
		{"garbage when open", func(c *caller) { c.open("echo:1"); c.send([]byte{0xff}) }, codes.Internal, "frame_invalid"},
		{"cut packet", func(c *caller) { c.send([]byte{0x12, 0x7f, 0x01}) }, codes.Internal, "frame_invalid"},
		{"address not UTF-8", func(c *caller) { c.send([]byte{0x12, 0x03, 0x12, 0x01, 0xff}) }, codes.Internal, "frame_invalid"},
		{"data before a dial", func(c *caller) { c.say(dataPacket(1, []byte("x"))) }, codes.InvalidArgument, "frame_invalid"},
		{"data for another", func(c *caller) { c.say(dataPacket(c.open("echo:1")+1, []byte("x"))) }, codes.InvalidArgument, "frame_invalid"},
		{"data for the witness", func(c *caller) { c.open("echo:1"); c.say(dataPacket(id, []byte("x"))) }, codes.InvalidArgument, "frame_invalid"},
		{"data for none", func(c *caller) { c.open("echo:1"); c.say(dataPacket(0, []byte("x"))) }, codes.InvalidArgument, "frame_invalid"},
		{"second dial", func(c *caller) { c.open("echo:1"); c.say(dialRequest("echo:1")) }, codes.InvalidArgument, "second DIAL_REQ"},
		{"oversized", func(c *caller) { c.say(dataPacket(c.open("echo:1"), make([]byte, 4<<20))) }, codes.ResourceExhausted, "larger than max"},
		{"close before a dial", func(c *caller) { c.say(closeRequest(7)) }, codes.OK, ""},
		{"end without a word", func(c *caller) { c.stream.CloseSend() }, codes.OK, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := call(t, conn, proxy)
			c.do(one)
			one.ends(c.code, c.text)
			witness.echoes(id)
		})
	}
	t.Run("unknown method", func(t *testing.T) {
		call(t, conn, "/ProxyService/Other").ends(codes.Unimplemented, "unknown method")
		call(t, conn, "/AgentService/Connect").ends(codes.Unimplemented, "unknown service")
		witness.echoes(id)
	})
	t.Run("unknown and foreign types are ignored", func(t *testing.T) {
		one := call(t, conn, proxy)
		strange := []*pb.Packet{
			{Type: 77},
			{Type: pb.PacketType_DRAIN, Payload: &pb.Packet_Drain{Drain: &pb.Drain{}}},
			{Type: pb.PacketType_CLOSE_RSP, Payload: &pb.Packet_CloseResponse{CloseResponse: &pb.CloseResponse{ConnectID: 9}}},
			{Type: pb.PacketType_DIAL_RSP, Payload: &pb.Packet_DialResponse{DialResponse: &pb.DialResponse{ConnectID: 9}}},
		}
		for _, p := range strange {
			one.say(p)
		}
		mine := one.open("echo:1")
		for _, p := range strange {
			one.say(p)
		}
		one.echoes(mine)
		one.say(closeRequest(mine))
		if m := one.want(pb.PacketType_CLOSE_RSP).GetCloseResponse(); m.GetConnectID() != mine || m.GetError() != "" {
			t.Errorf("closed with %v", m)
		}
		one.ends(codes.OK, "")
	})
	t.Run("wrong wire types", func(t *testing.T) {
		one := call(t, conn, proxy)
		// The type as bytes, the request as a number: both are unknown fields, and what is left is an empty DIAL_REQ.
		raw := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "DATA")
		one.send(protowire.AppendVarint(protowire.AppendTag(raw, 2, protowire.VarintType), 5))
		if m := one.want(pb.PacketType_DIAL_RSP).GetDialResponse(); m.GetConnectID() != 0 || !strings.Contains(m.GetError(), "dial_dns") {
			t.Errorf("answered %v", m)
		}
		one.ends(codes.OK, "")
	})
	witness.say(closeRequest(id))
	witness.want(pb.PacketType_CLOSE_RSP)
}

// TestDataIsBounded: whatever the pieces in which a target's bytes come, no packet
// has more than its bound, and the bytes are the same.
func TestDataIsBounded(t *testing.T) {
	c := call(t, connect(t, newRig(t)), proxy)
	id := c.open("coarse:1")
	sent := bytes.Repeat([]byte("0123456789abcdef"), konnectivity.KonnectivityData)
	sent = sent[:6*konnectivity.KonnectivityData+10] // two pieces of the stream
	for rest := sent; len(rest) > 0; {
		n := min(len(rest), 60_000)
		c.say(dataPacket(id, rest[:n]))
		rest = rest[n:]
	}
	for got := 0; got < len(sent); {
		m := c.want(pb.PacketType_DATA).GetData().GetData()
		if len(m) == 0 || len(m) > konnectivity.KonnectivityData || !bytes.Equal(m, sent[got:min(len(sent), got+len(m))]) {
			t.Fatalf("%d bytes after %d, at most %d of what was sent are meant", len(m), got, konnectivity.KonnectivityData)
		}
		got += len(m)
	}
	c.say(closeRequest(id))
	c.want(pb.PacketType_CLOSE_RSP)
	c.ends(codes.OK, "")
}

// TestPacketsAreBounded: the largest packet is passed on whole; a byte more ends
// the stream that it came on, and its target, and nothing else.
func TestPacketsAreBounded(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	witness := call(t, conn, proxy)
	safe := witness.open("echo:1")
	c := call(t, conn, proxy)
	id := c.open("echo:1")
	around := proto.Size(dataPacket(id, make([]byte, limit.KonnectivityPacket))) - limit.KonnectivityPacket
	most := bytes.Repeat([]byte("0123456789abcdef"), limit.KonnectivityPacket/16)[around:]
	c.say(dataPacket(id, most))
	for rest := most; len(rest) > 0; {
		m := c.want(pb.PacketType_DATA).GetData().GetData()
		if len(m) == 0 || !bytes.HasPrefix(rest, m) {
			t.Fatalf("%d bytes come back that were not sent so", len(m))
		}
		rest = rest[len(m):]
	}
	c.say(dataPacket(id, append(most, 'x')))
	c.ends(codes.ResourceExhausted, "")
	witness.echoes(safe)

	torn := call(t, conn, proxy)
	id = torn.open("target:1")
	target := r.target()
	torn.say(dataPacket(id, append(most, 'x')))
	torn.ends(codes.ResourceExhausted, "")
	isReset(t, target)
}

// TestStreamsWithoutADialAreBounded: whoever opens streams and asks for nothing gets
// so many on all connections of a socket, and those that have asked go on.
func TestStreamsWithoutADialAreBounded(t *testing.T) {
	r := newRig(t)
	conns := []*grpc.ClientConn{connect(t, r), connect(t, r), connect(t, r)}
	witness := call(t, conns[0], proxy)
	id := witness.open("echo:1")
	var mute []*caller
	for i := range limit.PendingDials {
		mute = append(mute, call(t, conns[i%3], proxy))
	}
	// That many at the least are there when the last is refused.
	for refused := false; !refused; {
		one := call(t, conns[1], proxy)
		sent := make(chan error, 1)
		go func() {
			_, err := one.hear()
			sent <- err
		}()
		select {
		case err := <-sent:
			refused = true
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limit_reached") {
				t.Fatalf("refused with %v", err)
			}
		case <-time.After(10 * time.Millisecond):
			mute = append(mute, one) // those before are still on their way
		}
		if len(mute) > 2*limit.PendingDials {
			t.Fatalf("%d streams without a dial", len(mute))
		}
	}
	witness.echoes(id)
	mute[0].say(dialRequest("echo:1"))
	mute[0].want(pb.PacketType_DIAL_RSP)
}

// TestMisbehaviourResetsTarget: what was passed on before a protocol error must
// not look complete to the target.
func TestMisbehaviourResetsTarget(t *testing.T) {
	r := newRig(t)
	c := call(t, connect(t, r), proxy)
	id := c.open("target:1")
	target := r.target()
	c.say(dataPacket(id, []byte("half a")))
	c.say(dataPacket(id+1, []byte(" sentence")))
	c.ends(codes.InvalidArgument, "frame_invalid")
	isReset(t, target)
}

// TestTargetReset: a broken target is told with its reason, not as an orderly end.
func TestTargetReset(t *testing.T) {
	r := newRig(t)
	c := call(t, connect(t, r), proxy)
	id := c.open("target:1")
	r.target().Reset(9)
	if m := c.want(pb.PacketType_CLOSE_RSP).GetCloseResponse(); m.GetConnectID() != id || !strings.Contains(m.GetError(), "code 9") {
		t.Errorf("closed with %v", m)
	}
	c.ends(codes.OK, "")
}

// TestAnswerOfDeparted: a target that answers and closes is heard to the end by a
// caller that is still sending.
func TestAnswerOfDeparted(t *testing.T) {
	r := newRig(t)
	for range 20 {
		c := call(t, connect(t, r), proxy)
		id := c.open("target:1")
		target := r.target()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			raw, _ := proto.Marshal(dataPacket(id, make([]byte, 1000)))
			for c.stream.SendMsg(&raw) == nil {
			}
		}()
		if _, err := target.Write(make([]byte, 200_000)); err != nil {
			t.Fatal(err)
		}
		target.Close()
		heard := 0
		for {
			p, err := c.hear()
			if err != nil || p.GetType() == pb.PacketType_CLOSE_RSP {
				if heard != 200_000 || err != nil || p.GetCloseResponse().GetError() != "" {
					t.Errorf("heard %d bytes and then %v, %v", heard, p, err)
				}
				break
			}
			heard += len(p.GetData().GetData())
		}
		soon(t, "the sender's end", sent)
	}
}

// TestDialClose: DIAL_CLS ends a dial under way, and a connection if it comes too late.
func TestDialClose(t *testing.T) {
	r := newRig(t)
	cls := &pb.Packet{Type: pb.PacketType_DIAL_CLS, Payload: &pb.Packet_CloseDial{CloseDial: &pb.CloseDial{Random: 42}}}
	early := call(t, connect(t, r), proxy)
	early.say(dialRequest("never:1"))
	behind := soon(t, "dial", r.dialing)
	early.say(cls)
	soon(t, "the dial behind ends", behind.Done())
	early.ends(codes.OK, "")

	late := call(t, connect(t, r), proxy)
	late.open("target:1")
	target := r.target()
	late.say(cls)
	late.want(pb.PacketType_CLOSE_RSP)
	if _, err := target.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the target reads %v, want io.EOF", err)
	}
	target.Close()
}

// TestVanish: a caller whose connection dies ends its dial, and its target sees a reset.
func TestVanish(t *testing.T) {
	r := newRig(t)
	conn := connect(t, r)
	pending, open, stuck, deaf := call(t, conn, proxy), call(t, conn, proxy), call(t, conn, proxy), call(t, conn, proxy)
	pending.say(dialRequest("never:1"))
	behind := soon(t, "dial", r.dialing)
	open.open("target:1")
	idle := r.target()
	id := stuck.open("target:1")
	mute := r.target()
	deaf.open("target:1")
	flood := r.target()
	filled := fill(flood)
	full := make(chan struct{})
	go func() { // until the mute target's windows are full and the connection dies
		defer close(full)
		raw, _ := proto.Marshal(dataPacket(id, make([]byte, 32<<10)))
		for stuck.stream.SendMsg(&raw) == nil {
		}
	}()
	soon(t, "the flood stalls", filled.stalled)
	conn.Close()
	soon(t, "the dial behind ends", behind.Done())
	isReset(t, idle)
	isReset(t, mute)
	soon(t, "the stuck writer", full)
	var reset *carrier.ResetError
	if err := soon(t, "the flood ends", filled.ended); !errors.As(err, &reset) {
		t.Errorf("the flooding target writes %v, want a reset", err)
	}
}

type filling struct {
	stalled chan struct{}
	ended   chan error
}

// fill writes until nothing is taken any more, says so, and goes on waiting.
func fill(s carrier.Stream) filling {
	f := filling{make(chan struct{}), make(chan error, 1)}
	go func() {
		block := make([]byte, 64<<10)
		for {
			s.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := s.Write(block); err != nil {
				break
			}
		}
		s.SetWriteDeadline(time.Now().Add(bound))
		close(f.stalled)
		for {
			if _, err := s.Write(block); err != nil {
				f.ended <- err
				return
			}
		}
	}()
	return f
}
