// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
)

// FuzzYamux gives a session over yamux arbitrary bytes, after a stream was opened
// to its peer. The session ends with its connection, and all who use it are told.
func FuzzYamux(f *testing.F) {
	frame := func(kind byte, flags uint16, id, length uint32, payload string) []byte {
		b := []byte{0, kind}
		b = binary.BigEndian.AppendUint16(b, flags)
		b = binary.BigEndian.AppendUint32(b, id)
		return append(binary.BigEndian.AppendUint32(b, length), payload...)
	}
	for _, s := range [][]byte{
		frame(0, 1, 1, 5, "hello"), frame(1, 1, 1, 1<<20, ""), frame(2, 1, 0, 7, ""), frame(3, 0, 0, 0, ""), frame(0, 4, 1, 0, ""),
		frame(0, 8, 2, 0, ""), frame(0, 1, 1, 1<<32-1, "much"), frame(1, 2, 2, 1<<32-1, ""), frame(9, 0, 0, 0, ""), frame(1, 1, 2, 0, ""),
		append(frame(1, 1, 1, 0, ""), append(frame(0, 0, 1, 3, "abc"), append(frame(0, 4, 1, 0, ""), frame(0, 0, 1, 1, "x")...)...)...),
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, said []byte, client bool) {
		if len(said) > 1<<16 {
			return
		}
		before := runtime.NumGoroutine()
		near, far := net.Pipe()
		far.SetDeadline(deadlineNow())
		end := Server
		if client {
			end = Client
		}
		s, err := end(Yamux, near, Options{Incoming: 4})
		if err != nil {
			t.Fatal(err)
		}
		var users sync.WaitGroup
		users.Go(func() { io.Copy(io.Discard, far) })
		use := func(st Stream) {
			st.SetDeadline(deadlineNow())
			users.Go(func() {
				defer st.Close()
				st.CopyFrom(st, nil)
			})
		}
		if st, err := s.OpenStream(t.Context(), []byte("first")); err == nil {
			use(st)
		}
		users.Go(func() {
			for {
				st, err := s.AcceptStream(t.Context())
				if err != nil {
					return
				}
				use(st)
			}
		})
		far.Write(said)
		far.Close()
		done(t, "the session ends", s.Done())
		s.Close()
		over := make(chan struct{})
		go func() { users.Wait(); close(over) }()
		done(t, "who used the streams is told", over)
		eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	})
}
