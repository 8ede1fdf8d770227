// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestWhatACallerSaidLast reaches a target over the reference's wire, whole, when the caller has closed its connection
// right after it; then the connection ends, though the target says nothing.
func TestWhatACallerSaidLast(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]startAgent{"their agent": theirAgent, "our agent": ourAgent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.ours("http-connect", false, "--native=false")
			a := start(w, p.agentPort)
			p.ready()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			w.must(err)
			defer ln.Close()
			conn := p.mustDial(ln.Addr().String())
			target, err := ln.Accept()
			w.must(err)
			defer target.Close()
			target.SetDeadline(time.Now().Add(bound))
			const size = 3 << 20
			_, err = conn.Write(make([]byte, size))
			w.must(err)
			conn.Close()
			if n, err := io.Copy(io.Discard, target); err != nil || n != size {
				t.Errorf("the target reads %d bytes of %d, then %v", n, size, err)
			}
			eventually(t, "the connection has ended", func() bool {
				return metric(a.health, "konnectivity_network_proxy_agent_open_endpoint_connections") == "0"
			})
		})
	}
}
