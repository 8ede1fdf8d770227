// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// BenchmarkRelay carries packets of 1,420 bytes from one node to another, with half a
// queue of them on their way, so that none is dropped; ns/op beside those of
// BenchmarkPlainTLS of the same run are its price: two connections and the choice.
func BenchmarkRelay(b *testing.B) {
	hubA, a := tcpEnds(b)
	hubB, far := tcpEnds(b)
	from, to := aRelay(b)
	from.relay.Bound(quota.RelayBounds{Nodes: 10, Node: quota.Unbounded, Cluster: quota.Unbounded})
	from.conn, to.conn, from.certEnd = hubA, hubB, time.Now().Add(time.Hour)
	go from.read(time.Now)
	go to.write()
	one := relayproto.AppendPacket(nil, "b", wg(1420))
	batch := bytes.Repeat(one, 40)
	var got atomic.Int64
	came := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			n, err := far.Read(buf)
			got.Add(int64(n))
			select {
			case came <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	sent := int64(0)
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		if _, err := a.Write(batch); err != nil {
			b.Fatal(err)
		}
		for sent += int64(len(batch)); sent-got.Load() > limit.RelayQueue/2; {
			<-came
		}
	}
	if n := from.moved.dropped(); n > 0 {
		b.Errorf("%d packets were dropped", n)
	}
	to.out.close(nil)
	hubB.Close()
	hubA.Close()
	<-done
}

// BenchmarkPlainTLS carries the same bytes over one TLS connection.
func BenchmarkPlainTLS(b *testing.B) {
	hub, a := tcpEnds(b)
	batch := bytes.Repeat(relayproto.AppendPacket(nil, "b", wg(1420)), 40)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			if _, err := hub.Read(buf); err != nil {
				return
			}
		}
	}()
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		if _, err := a.Write(batch); err != nil {
			b.Fatal(err)
		}
	}
	a.Close()
	<-done
}

func tcpEnds(b *testing.B) (hub, node *tls.Conn) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { near.Close(); far.Close() })
	return ends(b, near, far)
}
