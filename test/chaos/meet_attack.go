// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// besiege attacks a discovery service in every way that unknown peers and members of foreign clusters
// have, from addresses of their own: rates and bounds are of an address.
func (s *solo) besiege(ctx context.Context) error {
	at := s.door(0)
	var calls, taken atomic.Int64
	kinds := append(s.halfCalls(at), s.calls(at, &calls, &taken)...)
	for round := 0; round == 0 || taken.Load() == 0 && round < 20 && ctx.Err() == nil; round++ { // on a slow machine not all come through
		if err := s.hostile(ctx, kinds); err != nil {
			return err
		}
	}
	s.say("%d hostile calls, of which %d were served", calls.Load(), taken.Load())
	s.served += taken.Load()
	return nil
}

// from dials from an address of an attacker's own.
func from(number byte) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 5, 5, number)}, Timeout: 5 * time.Second}
}

func fromAddress(number byte, at string, attack func(conn net.Conn) error) func(time.Time) error {
	return func(deadline time.Time) error {
		conn, err := from(number).Dial("tcp", at)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(deadline)
		return attack(conn)
	}
}

// halfCalls are connections that never come to a call, or break the rules of HTTP/2.
func (s *solo) halfCalls(at string) (kinds []func(time.Time) error) {
	shake := func(alpn string, then func(c *tls.Conn) error) func(net.Conn) error {
		return func(conn net.Conn) error {
			c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpn}})
			if err := c.Handshake(); err != nil {
				return err
			}
			return then(c)
		}
	}
	wait := func(conn net.Conn) error { // until the service has had enough
		_, err := io.Copy(io.Discard, conn)
		return err
	}
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	kinds = append(kinds,
		fromAddress(1, at, func(net.Conn) error { return nil }), // comes and goes
		fromAddress(1, at, wait),
		fromAddress(2, at, func(c net.Conn) error { // half a handshake
			io.WriteString(c, hello)
			return wait(c)
		}),
		fromAddress(2, at, func(c net.Conn) error { // a byte now and then
			for _, b := range []byte(hello) {
				if _, err := c.Write([]byte{b}); err != nil {
					return err
				}
				time.Sleep(50 * time.Millisecond)
			}
			return wait(c)
		}),
		fromAddress(3, at, func(c net.Conn) error { // noise
			_, err := io.CopyN(c, crand.Reader, 1<<20)
			return err
		}),
		fromAddress(3, at, shake("http/1.1", func(c *tls.Conn) error { // a header without end
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 1<<20))
			return err
		})),
		fromAddress(3, at, shake("h2", func(c *tls.Conn) error { return wait(c) })), // says nothing more
	)
	for _, flood := range h2Floods() {
		kinds = append(kinds, fromAddress(4, at, shake("h2", func(c *tls.Conn) error {
			h := newH2(c, sdr.Cluster_Watch_FullMethodName)
			go io.Copy(io.Discard, c) // ends with the connection
			return flood(h)
		})))
	}
	return kinds
}

// junk sends bytes as they are.
type junk struct{}

func (junk) Name() string { return "proto" }
func (junk) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (junk) Unmarshal(mem.BufferSlice, any) error { return nil }

var _ encoding.CodecV2 = junk{}

// calls are floods of calls, whose senders know the protocol.
func (s *solo) calls(at string, all, taken *atomic.Int64) (kinds []func(time.Time) error) {
	many := func(number byte, do func(ctx context.Context, conn *grpc.ClientConn, i int) error) {
		kinds = append(kinds, func(deadline time.Time) error {
			ctx, cancel := context.WithDeadline(context.Background(), deadline)
			defer cancel()
			conn, err := grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
				grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
					return from(number).DialContext(ctx, "tcp", at)
				}))
			if err != nil {
				return err
			}
			defer conn.Close()
			for i := 0; ctx.Err() == nil && i < 500; i++ {
				all.Add(1)
				if do(ctx, conn, i) == nil {
					taken.Add(1)
				}
			}
			return nil
		})
	}
	many(10, func(ctx context.Context, conn *grpc.ClientConn, _ int) error {
		_, err := sdr.NewClusterClient(conn).Hello(ctx, &sdr.HelloRequest{ClusterId: "hostile"})
		return err
	})
	many(11, func(ctx context.Context, conn *grpc.ClientConn, i int) error { // ever new members, for half an hour each
		_, err := sdr.NewClusterClient(conn).AffiliateUpdate(ctx, &sdr.AffiliateUpdateRequest{ClusterId: "hostile",
			AffiliateId: fmt.Sprint(time.Now().UnixNano()), AffiliateData: make([]byte, 2048), Ttl: &sdr.Duration{Seconds: 1800}})
		return err
	})
	many(12, func(ctx context.Context, conn *grpc.ClientConn, i int) error { // watches that are not read
		stream, err := sdr.NewClusterClient(conn).Watch(ctx, &sdr.WatchRequest{ClusterId: "hostile"})
		if err == nil && i%50 == 49 {
			_, err = stream.Recv()
		}
		return err
	})
	many(13, func(ctx context.Context, conn *grpc.ClientConn, i int) error { // no protobuf
		noise := make([]byte, 10+i)
		crand.Read(noise)
		return conn.Invoke(ctx, sdr.Cluster_AffiliateUpdate_FullMethodName, noise, &noise, grpc.ForceCodecV2(junk{}))
	})
	many(14, func(ctx context.Context, conn *grpc.ClientConn, _ int) error { // larger than a message may be
		_, err := sdr.NewClusterClient(conn).AffiliateUpdate(ctx, &sdr.AffiliateUpdateRequest{ClusterId: "hostile", AffiliateId: "x",
			AffiliateData: make([]byte, 1<<20), Ttl: &sdr.Duration{Seconds: 1800}})
		return err
	})
	many(15, func(ctx context.Context, conn *grpc.ClientConn, i int) error { return s.guess(ctx, conn, i) })
	many(16, func(ctx context.Context, conn *grpc.ClientConn, _ int) error { return s.replay(ctx, conn) })
	return kinds
}

// guess attends a cluster of which nothing but the id is known, with a proof of
// another, and brings an entry without one.
func (s *solo) guess(ctx context.Context, conn *grpc.ClientConn, i int) error {
	secret, err := seal.NewSecret(crand.Reader)
	if err != nil {
		return err
	}
	stream, err := pb.NewDiscoveryClient(conn).Attend(ctx)
	if err != nil {
		return err
	}
	defer stream.CloseSend()
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	if i%2 == 0 {
		proof, err := seal.Prove(secret.Keys(), nil, m.GetChallenge().GetNonce(), "hostile")
		if err != nil {
			return err
		}
		proof.Version, proof.Verifier = 1, s.keys.Verifier()
		if err := stream.Send(&pb.FromMember{Frame: &pb.FromMember_Proof{Proof: proof}}); err != nil {
			return err
		}
	} else if err := stream.Send(&pb.FromMember{Frame: &pb.FromMember_Put{Put: &pb.Put{Entry: &pb.Entry{}}}}); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetWelcome() != nil {
			s.chr.bad("a service welcomes who has proved nothing")
			return nil
		}
	}
}

// replay is a member of the cluster, with the secret, that brings every entry of the
// others again: as it was, and as its own.
func (s *solo) replay(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	self, err := seal.NewMemberKey(crand.Reader)
	if err != nil {
		return err
	}
	stream, err := attendService(ctx, conn, s.keys, &self)
	if err != nil {
		return err
	}
	puts := 0
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, e := range m.GetSnapshot().GetEntries() {
			if err := stream.Send(&pb.FromMember{Frame: &pb.FromMember_Put{Put: &pb.Put{Entry: e}}}); err != nil {
				return err
			}
			puts++
		}
		switch {
		case m.GetAck() != nil:
			s.chr.bad("an entry of another member is taken: %v", m.GetAck())
		case m.GetRefusal() != nil:
			puts--
		}
		if puts == 0 && (m.GetRefusal() != nil || m.GetSnapshot().GetLast()) {
			return nil
		}
	}
}
