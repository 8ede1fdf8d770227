// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
)

// A stream through a front door that passes TLS on without ending it: a real ClientHello, then bytes as they are, so
// that encryption, which costs the same at each door, does not hide what the door itself costs.

// wantAt is where the ClientHello says what the far end is asked for: the first byte of its random.
const wantAt = recordHead + 4 + 2

const recordHead = 5 // type, version and length of a TLS record

// clientHello is what crypto/tls sends first to a server of this name.
func clientHello(name string) ([]byte, error) {
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		// It fails when the far end closes.
		_ = tls.Client(near, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS13}).Handshake()
		near.Close()
	}()
	return readRecord(far)
}

// readRecord reads one TLS record with its head.
func readRecord(r io.Reader) ([]byte, error) {
	head := make([]byte, recordHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, err := io.ReadFull(r, body)
	return append(head, body...), err
}

// greeter opens a connection for each stream, and begins each with a ClientHello.
type greeter struct {
	direct
	hello []byte
}

func (g *greeter) open(ctx context.Context, first []byte) (stream, error) {
	conn, err := g.next(ctx)
	if err != nil {
		return nil, err
	}
	hello := slices.Clone(g.hello)
	hello[wantAt] = first[0]
	if _, err := conn.Write(hello); err != nil {
		conn.Close()
		return nil, err
	}
	return plain{conn, &g.pool}, nil
}

// greeted is a connection whose ClientHello has been read.
type greeted struct {
	net.Conn
	want []byte // not read yet
}

func readHello(conn net.Conn) (net.Conn, error) {
	record, err := readRecord(conn)
	if err != nil {
		return conn, err
	}
	if len(record) <= wantAt {
		return conn, fmt.Errorf("a ClientHello of %d bytes", len(record))
	}
	return &greeted{conn, record[wantAt : wantAt+1]}, nil
}

func (g *greeted) Read(b []byte) (int, error) {
	if len(g.want) > 0 {
		n := copy(b, g.want)
		g.want = g.want[n:]
		return n, nil
	}
	return g.Conn.Read(b)
}
