// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// CopyFrom implements carrier.Stream.
func (f *flow) CopyFrom(src io.Reader, moved func(n int)) (srcErr, err error) {
	pool := f.link.pool
	var buf *[]byte
	give := func() {
		if buf != nil {
			pool.Put(buf)
			buf = nil
		}
	}
	take := func() []byte { buf = pool.Get(konnectivityData); return (*buf)[:konnectivityData] }
	defer give()
	patient, _ := src.(carrier.Patient)
	for {
		var n int
		var b []byte
		if patient != nil {
			n, srcErr = patient.ReadWhenReady(take, give)
			if buf != nil {
				b = *buf
			}
		} else {
			b = take()
			n, srcErr = src.Read(b)
		}
		if n > 0 {
			if _, err := f.Write(b[:n]); err != nil {
				return nil, err
			}
			if moved != nil {
				moved(n)
			}
		}
		give()
		if srcErr != nil {
			return srcErr, nil
		}
	}
}

// SetReadDeadline implements net.Conn.
func (f *flow) SetReadDeadline(t time.Time) error {
	f.mu.Lock()
	f.deadline = t
	f.mu.Unlock()
	signal(f.readable)
	return nil
}

// SetWriteDeadline implements net.Conn; there is none, for a link sends one packet at a time.
func (f *flow) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// SetDeadline implements net.Conn for what is read.
func (f *flow) SetDeadline(t time.Time) error { return f.SetReadDeadline(t) }

// LocalAddr implements net.Conn.
func (f *flow) LocalAddr() net.Addr { return flowAddr{} }

// RemoteAddr implements net.Conn.
func (f *flow) RemoteAddr() net.Addr { return flowAddr{} }

type flowAddr struct{}

func (flowAddr) Network() string { return "konnectivity" }
func (flowAddr) String() string  { return "konnectivity" }
