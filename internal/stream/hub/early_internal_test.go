// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// lateConn is read only when its deadline has passed, as by a watcher that gets no processor in time.
type lateConn struct {
	net.Conn
	reading, past chan struct{}
}

func (c lateConn) Read([]byte) (int, error) {
	close(c.reading)
	<-c.past
	return 0, os.ErrDeadlineExceeded
}

func (c lateConn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		close(c.past)
	}
	return nil
}

type resetStream struct {
	carrier.Stream
	reset bool
}

func (s *resetStream) Reset(uint32) error { s.reset = true; return nil }

// TestEarlyBytesWithALateWatcher: a dial ends just when it begins to be watched, and the watcher finds the deadline passed.
func TestEarlyBytesWithALateWatcher(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := client.Write([]byte("GET /")); err != nil {
		t.Fatal(err)
	}
	late, stream := lateConn{conn, make(chan struct{}), make(chan struct{})}, &resetStream{}
	got, err := dialQuietly(t.Context(), time.Minute, late, splice.Net(conn), func(context.Context) (carrier.Stream, error) {
		<-late.reading
		return stream, nil
	})
	if got != nil || !fault.Has(err, fault.CodeEarlyData) || !stream.reset {
		t.Errorf("%v, %v, reset %v", got, err, stream.reset)
	}
}
