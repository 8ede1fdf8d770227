// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// TestWhoHasLeft: what is known of a peer without a byte being read or written.
func TestWhoHasLeft(t *testing.T) {
	type halves interface {
		net.Conn
		CloseWrite() error
	}
	still := bytes.Repeat([]byte("still to be read"), 10)
	for name, c := range map[string]struct {
		network string
		leave   func(halves)
		unread  bool // there are bytes for it
		more    bool // there are bytes of it
		sends   bool
		takes   bool
	}{
		"unix, there":                  {"unix", func(halves) {}, false, true, false, false},
		"unix, has sent all":           {"unix", func(c halves) { c.CloseWrite() }, false, false, true, false},
		"unix, to be read":             {"unix", func(c halves) { c.CloseWrite() }, false, true, false, false},
		"unix, has closed":             {"unix", func(c halves) { c.Close() }, false, false, true, true},
		"tcp, there":                   {"tcp", func(halves) {}, true, true, false, false},
		"tcp, has sent all":            {"tcp", func(c halves) { c.CloseWrite() }, false, false, true, false},
		"tcp, to be read":              {"tcp", func(c halves) { c.CloseWrite() }, false, true, false, false},
		"tcp, has closed":              {"tcp", func(c halves) { c.Close() }, false, false, true, false}, // as far as can be seen
		"tcp, closed, to be read":      {"tcp", func(c halves) { c.Close() }, false, true, false, false},
		"tcp, has closed and not read": {"tcp", func(c halves) { c.Close() }, true, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			at := "127.0.0.1:0"
			if c.network == "unix" {
				at = filepath.Join(t.TempDir(), "s")
			}
			ln, err := net.Listen(c.network, at)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			far, err := net.Dial(c.network, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			near, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			if c.unread {
				if _, err := near.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			if c.more {
				if _, err := far.Write(still); err != nil {
					t.Fatal(err)
				}
			}
			c.leave(far.(halves))
			for what, conn := range map[string]net.Conn{"plain": near, "under TLS": tls.Server(splice.Below(near), &tls.Config{})} {
				p := splice.PeerOf(conn)
				runtest.Eventually(t, what, func() bool {
					sends, takes := p.Left()
					return sends == c.sends && takes == c.takes
				})
			}
			p := splice.PeerOf(near)
			rest := make([]byte, len(still))
			if !c.more {
				rest = nil
			}
			if _, err := io.ReadFull(near, rest); err != nil {
				t.Fatal(err)
			}
			runtest.Eventually(t, "when all is read", func() bool { sends, _ := p.Left(); return sends == !strings.HasSuffix(name, "there") })
			near.Close()
			if sends, takes := p.Left(); !sends || !takes {
				t.Error("after our own close there is somebody")
			}
		})
	}
	a, b := net.Pipe()
	defer a.Close()
	b.Close()
	if sends, takes := splice.PeerOf(a).Left(); sends || takes {
		t.Error("of a pipe nothing is known")
	}
}
