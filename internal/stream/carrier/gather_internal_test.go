// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// counted is a connection that notes its writes.
type counted struct {
	net.Conn
	writes []int
	fail   error
}

func (c *counted) Write(b []byte) (int, error) {
	if c.fail != nil {
		return 0, c.fail
	}
	c.writes = append(c.writes, len(b))
	return c.Conn.Write(b)
}

// TestGather: what is written meanwhile leaves at once and in order, what comes after it by
// itself, and the buffer is the caller's again.
func TestGather(t *testing.T) {
	near, far := pair(t, false)
	below := &counted{Conn: near}
	conn := Wrap(below)
	want := pattern(3000)
	buf, err := Gather(conn, make([]byte, 10, 8000), func() error {
		for _, piece := range [][]byte{want[:1000], want[1000:1001], want[1001:2500]} {
			if n, err := conn.Write(piece); n != len(piece) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		return nil
	})
	if err != nil || len(below.writes) != 1 || below.writes[0] != 2500 || cap(buf) != 8000 {
		t.Fatalf("writes of %v bytes, a buffer of %d: %v", below.writes, cap(buf), err)
	}
	if _, err := conn.Write(want[2500:]); err != nil || len(below.writes) != 2 {
		t.Errorf("after it: writes of %v bytes, %v", below.writes, err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes arrive: %v", err)
	}
	broken := errors.New("broken")
	if _, err := Gather(conn, buf, func() error { conn.Write(want); return broken }); !errors.Is(err, broken) || len(below.writes) != 2 {
		t.Errorf("of a write that failed %v leaves: %v", below.writes[2:], err)
	}
	below.fail = broken
	if _, err := Gather(conn, buf, func() error { _, err := conn.Write(want); return err }); !errors.Is(err, broken) {
		t.Errorf("the network's error: %v", err)
	}
	below.fail = nil
	if _, err := Gather(near, nil, func() error { _, err := near.Write(want); return err }); err != nil {
		t.Errorf("of a connection that nobody has wrapped: %v", err)
	}
}
