// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// modelFlow is what a connection shall be after some packets.
type modelFlow struct {
	flow  *flow
	bytes []byte
	ended bool
}

// FuzzTunnel gives the server's end packets in any order, and compares its connections with a model: an id is of one
// connection at a time, and what comes for it is read by it, in order, and by no other.
func FuzzTunnel(f *testing.F) {
	f.Add([]byte{1, 1, 1, 4, 1, 7, 3, 1, 0})
	f.Add([]byte{1, 1, 1, 1, 2, 1, 4, 1, 1, 4, 2, 2, 3, 2, 0, 6, 0, 0, 4, 9, 9})
	f.Fuzz(func(t *testing.T, ops []byte) {
		tun := newTestTunnel(wirePair{})
		asking := map[int64]chan answer{}
		for r := range int64(4) {
			asking[r] = make(chan answer, 1)
			tun.pending[r] = &asked{answer: asking[r]}
		}
		live := map[int64]*modelFlow{}
		var all []*modelFlow
		closes := 0 // that we must have sent
		for step := range slices.Chunk(ops[:min(len(ops), 900)], 3) {
			if len(step) < 3 {
				break
			}
			kind, a, b := PacketType(step[0]%9), int64(step[1]%4), int64(step[2]%5)
			p := &packet{kind: kind, body: body{random: a, connectID: b, payload: bytes.Repeat(step[2:3], int(step[1]))}}
			waits := tun.pending[a] != nil
			tun.handle(p)
			switch kind {
			case dialResponse:
				switch {
				case !waits && b != 0 && live[b] == nil:
					closes++
				case waits && b != 0 && live[b] == nil:
					got := <-asking[a]
					live[b] = &modelFlow{flow: got.flow}
					all = append(all, live[b])
				case waits:
					if got := <-asking[a]; !fault.Has(got.err, fault.CodeFrameInvalid) {
						t.Fatalf("an answer that makes no sense: %v", got.err)
					}
				}
			case data:
				if m := live[b]; m != nil {
					m.bytes = append(m.bytes, bytes.Repeat(step[2:3], int(step[1]))...)
				} else if b != 0 {
					closes++
				}
			case closeResponse:
				if m := live[b]; m != nil {
					m.ended = true
					delete(live, b)
				}
			}
			if len(tun.controls) != closes {
				t.Fatalf("%d controls are to be sent, and not %d", len(tun.controls), closes)
			}
		}
		tun.end(fault.New(fault.CodeSessionLost, "over"))
		for _, m := range all {
			got, err := io.ReadAll(m.flow)
			if !bytes.Equal(got, m.bytes) || m.ended != (err == nil) {
				t.Fatalf("a connection read %d bytes of %d: %v", len(got), len(m.bytes), err)
			}
		}
	})
}

// FuzzUpstream gives the agent's end packets in any order: it ends with nothing left.
func FuzzUpstream(f *testing.F) {
	f.Add([]byte{0, 1, 1, 4, 1, 7, 2, 1, 0})
	f.Add([]byte{0, 1, 1, 0, 2, 1, 5, 1, 1, 4, 2, 2, 2, 2, 0, 6, 0, 0, 4, 9, 9})
	f.Fuzz(func(t *testing.T, ops []byte) {
		out, ended := make(chan packet, 4096), make(chan struct{})
		dial := func(_ context.Context, _, address string) (net.Conn, error) {
			if address == "refused" {
				return nil, io.ErrClosedPipe
			}
			a, b := net.Pipe()
			go func() { io.Copy(b, b); b.Close() }()
			return a, nil
		}
		u := newTestUpstream(t.Context(), wirePair{out, nil, ended}, dial)
		u.group.Do(u.sendControls)
		for step := range slices.Chunk(ops[:min(len(ops), 300)], 3) {
			if len(step) < 3 {
				break
			}
			address := "target"
			if step[2]%4 == 0 {
				address = "refused"
			}
			u.handle(&packet{kind: PacketType(step[0] % 9), body: body{random: int64(step[1] % 4), connectID: int64(step[2] % 6),
				protocol: []string{"tcp", "unix", "udp", "tcp"}[step[1]%4], address: address, payload: step[1:2]}})
		}
		u.end(fault.New(fault.CodeSessionLost, "over"))
		close(ended)
		u.group.Stop()
		u.group.Wait()
		if u.Open() != 0 || u.count() != 0 {
			t.Fatalf("%d connections are left", u.Open())
		}
	})
}
