// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// The callers of a chain, as kube-apiserver is one.

func dialUnix(ctx context.Context, socket string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", socket)
}

// dialConnect asks the hub's socket for targets in turns.
func dialConnect(target string) func(context.Context, string) (net.Conn, error) {
	targets := spread(target)
	var turn atomic.Uint64
	return func(ctx context.Context, socket string) (net.Conn, error) {
		conn, err := dialUnix(ctx, socket)
		if err != nil {
			return nil, err
		}
		if err := connectTo(conn, targets[turn.Add(1)%uint64(len(targets))]); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// connectTo sends an HTTP CONNECT and reads the answer, no byte more: the hub
// sends nothing with it.
func connectTo(conn net.Conn, target string) error {
	if _, err := conn.Write([]byte("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n")); err != nil {
		return err
	}
	var answer [1 << 10]byte
	have := 0
	for !bytes.HasSuffix(answer[:have], []byte("\r\n\r\n")) {
		if have == len(answer) {
			return errors.New("the answer to the CONNECT has no end")
		}
		n, err := conn.Read(answer[have:])
		if have += n; err != nil {
			return fmt.Errorf("the answer to the CONNECT: %w: %q", err, answer[:have])
		}
	}
	if !bytes.HasPrefix(answer[:have], []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("the CONNECT was refused: %q", answer[:have])
	}
	return nil
}

// tunnelled is a connection of the konnectivity client; its tunnel ends with it.
type tunnelled struct {
	net.Conn
	cancel context.CancelFunc
}

func (t tunnelled) Close() error {
	defer t.cancel()
	return t.Conn.Close()
}

// dialGRPC dials as kube-apiserver does with GRPC: a connection and a tunnel for
// each dial.
func dialGRPC(target string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, socket string) (net.Conn, error) {
		whole, cancel := context.WithCancel(context.Background())
		ctx, done := context.WithTimeout(ctx, 30*time.Second)
		defer done()
		tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, whole, "unix://"+socket,
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			cancel()
			return nil, err
		}
		conn, err := tunnel.DialContext(ctx, "tcp", target)
		if err != nil {
			cancel()
			return nil, err
		}
		return tunnelled{conn, cancel}, nil
	}
}
