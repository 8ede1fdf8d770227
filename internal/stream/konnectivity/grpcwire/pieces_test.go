// SPDX-License-Identifier: Apache-2.0

package grpcwire_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framed is a message with its header.
func framed(n int) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(n))
	for i := range n {
		b = append(b, byte('a'+i%26))
	}
	return b
}

// begun opens a stream whose handler waits for a message, or is about to.
func (p *peer) begun() uint32 {
	p.Helper()
	id := p.open()
	for _, message := range [][]byte{framed(1), framed(0)} { // of the empty one nothing comes behind the header
		p.WriteData(id, false, message)
		if p.until(func(f http2.Frame) bool {
			d, ok := f.(*http2.DataFrame)
			return ok && d.StreamID == id && bytes.Equal(d.Data(), message)
		}) == nil {
			p.Fatal("the connection has ended")
		}
	}
	return id
}

// TestMessagesInPieces are the same whatever the frames are in which they come, and wherever the handler is.
func TestMessagesInPieces(t *testing.T) {
	w := newWorld(t)
	var all []byte
	for _, n := range []int{0, 1, 4, 5, 6, 300, 0, 2_000, 40_000, 1} {
		all = append(all, framed(n)...)
	}
	for _, piece := range []int{1, 2, 5, 6, 7, 1_000, 16_000} {
		p := w.peer()
		id := p.begun()
		for left := all; len(left) > 0; {
			n := min(piece, len(left))
			p.WriteData(id, n == len(left), left[:n])
			left = left[n:]
		}
		var got []byte
		p.until(func(f http2.Frame) bool {
			if d, ok := f.(*http2.DataFrame); ok && d.StreamID == id {
				got = append(got, d.Data()...)
			}
			return len(got) >= len(all)
		})
		if !bytes.Equal(got, all) {
			t.Errorf("in pieces of %d: %d bytes come back of %d, or others", piece, len(got), len(all))
		}
		p.Close()
	}
}

// TestMessagesThatStop in the middle end their stream, and leave nothing behind.
func TestMessagesThatStop(t *testing.T) {
	w := newWorld(t)
	message := framed(5_000)
	for _, n := range []int{1, 5, 6, 500} {
		p := w.peer()
		ends := p.begun()
		p.WriteData(ends, true, message[:n])
		f, _ := p.until(func(f http2.Frame) bool {
			h, ok := f.(*http2.HeadersFrame)
			return ok && h.StreamID == ends && h.StreamEnded()
		}).(*http2.HeadersFrame)
		if f == nil {
			t.Fatalf("after %d bytes the stream has no status", n)
		}
		fields, err := hpack.NewDecoder(4096, nil).DecodeFull(f.HeaderBlockFragment())
		if err != nil || !slices.ContainsFunc(fields, func(f hpack.HeaderField) bool {
			return f.Name == "grpc-status" && f.Value != "0"
		}) {
			t.Errorf("after %d bytes the stream ends with %v (%v)", n, fields, err)
		}
		reset := p.begun()
		p.WriteData(reset, false, message[:n])
		p.WriteRSTStream(reset, http2.ErrCodeCancel)
		p.lives()
		p.WriteData(p.begun(), false, message[:n]) // until the connection ends
		p.lives()
		p.Close()
	}
	w.stop()
}
