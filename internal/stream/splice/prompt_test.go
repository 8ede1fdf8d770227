// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// sockets can be written without waiting.
func sockets(t *testing.T, body func(t *testing.T, near, far net.Conn)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			near, far := pairOn(t, network, address)
			body(t, near, far)
		})
	}
}

// TestWriteNow: it takes what fits and never waits; with Write for the rest every
// byte arrives.
func TestWriteNow(t *testing.T) {
	sockets(t, func(t *testing.T, near, far net.Conn) {
		conn := splice.Net(near)
		now := conn.(carrier.PromptWriter)
		msg := data(9, 64<<20) // more than any socket holds
		sent := 0
		for sent < len(msg) {
			n, err := now.WriteNow(msg[sent:])
			if err != nil {
				t.Fatal(err)
			}
			if sent += n; n == 0 {
				break
			}
		}
		if sent == 0 || sent == len(msg) {
			t.Fatalf("%d bytes were taken at once", sent)
		}
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(far)
			got <- b
		}()
		if _, err := conn.Write(msg[sent:]); err != nil {
			t.Fatal(err)
		}
		conn.CloseWrite()
		if b := <-got; !bytes.Equal(b, msg) {
			t.Errorf("%d bytes of %d arrived, or others", len(b), len(msg))
		}
	})
}

// TestWriteNowFails: with the errors of Write.
func TestWriteNowFails(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(near, far net.Conn)
		want error
	}{
		"closed":        {func(near, _ net.Conn) { near.Close() }, net.ErrClosed},
		"past deadline": {func(near, _ net.Conn) { near.SetWriteDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"reading ended": {func(near, far net.Conn) {
			far.Close()
			io.ReadAll(near) // so that the end has come
			for {
				if _, err := near.Write([]byte("x")); err != nil {
					return
				}
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sockets(t, func(t *testing.T, near, far net.Conn) {
				c.do(near, far)
				conn := splice.Net(near)
				_, oracle := conn.Write([]byte("x"))
				n, err := conn.(carrier.PromptWriter).WriteNow([]byte("x"))
				if n != 0 || err == nil || c.want != nil && !errors.Is(err, c.want) || describe(err, near) != describe(oracle, near) {
					t.Errorf("%d bytes, %v; Write says %v", n, err, oracle)
				}
			})
		})
	}
}
