// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pb "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// plain sends and receives bytes as they are.
type plain struct{}

func (plain) Name() string { return "proto" }

func (plain) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (plain) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// caller is a client without manners: one gRPC stream on which anything may be said.
type caller struct {
	t      *testing.T
	conn   *grpc.ClientConn
	stream grpc.ClientStream
}

func connect(t *testing.T, r *rig) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.socket, append(r.options(), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{})))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func call(t *testing.T, conn *grpc.ClientConn, method string) *caller {
	t.Helper()
	stream, err := conn.NewStream(within(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	return &caller{t, conn, stream}
}

func (c *caller) send(raw []byte) {
	c.t.Helper()
	if err := c.stream.SendMsg(&raw); err != nil && err != io.EOF { // io.EOF: the answer is there already
		c.t.Fatal(err)
	}
}

func (c *caller) say(p *pb.Packet) {
	c.t.Helper()
	raw, err := proto.Marshal(p)
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(raw)
}

func (c *caller) hear() (*pb.Packet, error) {
	var raw []byte
	if err := c.stream.RecvMsg(&raw); err != nil {
		return nil, err
	}
	var p pb.Packet
	return &p, proto.Unmarshal(raw, &p)
}

// want hears one packet of a type.
func (c *caller) want(kind pb.PacketType) *pb.Packet {
	c.t.Helper()
	p, err := c.hear()
	if err != nil || p.GetType() != kind {
		c.t.Fatalf("heard %v, %v; want a %v", p, err, kind)
	}
	return p
}

// ends wants the stream to end with a code and a text, whatever comes before.
func (c *caller) ends(code codes.Code, text string) {
	c.t.Helper()
	for {
		_, err := c.hear()
		if err == nil {
			continue
		}
		if err == io.EOF && code == codes.OK {
			return
		}
		if status.Code(err) != code || !strings.Contains(err.Error(), text) {
			c.t.Errorf("ended with %v, want %v with %q", err, code, text)
		}
		return
	}
}

func dialRequest(address string) *pb.Packet {
	return &pb.Packet{Type: pb.PacketType_DIAL_REQ, Payload: &pb.Packet_DialRequest{
		DialRequest: &pb.DialRequest{Protocol: "tcp", Address: address, Random: 42}}}
}

func dataPacket(id int64, b []byte) *pb.Packet {
	return &pb.Packet{Type: pb.PacketType_DATA, Payload: &pb.Packet_Data{Data: &pb.Data{ConnectID: id, Data: b}}}
}

func closeRequest(id int64) *pb.Packet {
	return &pb.Packet{Type: pb.PacketType_CLOSE_REQ, Payload: &pb.Packet_CloseRequest{CloseRequest: &pb.CloseRequest{ConnectID: id}}}
}

// open dials and gives the connection's id.
func (c *caller) open(address string) int64 {
	c.t.Helper()
	c.say(dialRequest(address))
	m := c.want(pb.PacketType_DIAL_RSP).GetDialResponse()
	if m.GetError() != "" || m.GetConnectID() == 0 || m.GetRandom() != 42 {
		c.t.Fatalf("dialled with %v", m)
	}
	return m.GetConnectID()
}

// echoes checks that an open connection still works.
func (c *caller) echoes(id int64) {
	c.t.Helper()
	c.say(dataPacket(id, []byte("still here")))
	if m := c.want(pb.PacketType_DATA).GetData(); m.GetConnectID() != id || string(m.GetData()) != "still here" {
		c.t.Errorf("echoed %v", m)
	}
}

const proxy = "/ProxyService/Proxy"
