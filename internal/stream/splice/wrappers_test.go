// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// wrapper is what a server does that has read ahead: its Read gives other bytes
// than the connection's below.
type wrapper struct {
	*net.TCPConn
	ahead io.Reader
}

func (w wrapper) Read(b []byte) (int, error) { return io.MultiReader(w.ahead, w.TCPConn).Read(b) }

// TestWrappersAreNotReadPast: only a connection whose bytes are those of the
// socket is read below its Read, and only a socket itself written below its Write.
func TestWrappersAreNotReadPast(t *testing.T) {
	near, _ := pairOn(t, "tcp", "127.0.0.1:0")
	tcp := near.(*net.TCPConn)
	inner := tls.Client(splice.Below(tcp), &tls.Config{})
	pipe, _ := net.Pipe()
	packets, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	for _, c := range []struct {
		name string
		conn net.Conn
		want bool
		now  bool // it is written without waiting
	}{
		{"tcp", tcp, true, true},
		{"wrap over tcp", carrier.Wrap(tcp), true, false},
		{"tls over below over tcp", inner, true, false},
		{"tls over below over wrap over tcp", tls.Client(splice.Below(carrier.Wrap(tcp)), &tls.Config{}), true, false},
		{"read ahead", wrapper{tcp, strings.NewReader("x")}, false, false},
		{"tls over tcp", tls.Client(tcp, &tls.Config{}), false, false},
		{"tls over read ahead", tls.Client(splice.Below(wrapper{tcp, nil}), &tls.Config{}), false, false},
		{"tls in tls", tls.Client(splice.Below(inner), &tls.Config{}), false, false},
		{"a pipe", pipe, false, false},
		{"packets", packets, false, false},
	} {
		if _, now := splice.Net(c.conn).(carrier.PromptWriter); now != c.now {
			t.Errorf("%s: prompt %v, want %v", c.name, now, c.now)
		}
		if _, got := splice.Net(c.conn).(carrier.Patient); got != c.want {
			t.Errorf("%s: patient %v, want %v", c.name, got, c.want)
		}
	}
}
