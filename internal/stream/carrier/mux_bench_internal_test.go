// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"io"
	"sync"
	"testing"
)

// benched is a pair of sessions whose agent does with each stream what it is told.
func benched(b *testing.B, connections int, serve func(st Stream)) (hub *muxSession) {
	b.Helper()
	agent, hub := newRig(b).sessions(connections)
	go func() {
		for {
			st, err := agent.AcceptStream(context.Background())
			if err != nil {
				return
			}
			go serve(st)
		}
	}()
	return hub
}

func swallow(st Stream) {
	st.CopyTo(io.Discard, nil)
	st.Close()
}

func echo(st Stream) {
	st.CopyFrom(st, nil)
	st.Close()
}

// endless is a source of so many full reads.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	e.left--
	return len(p), nil
}

// BenchmarkOne is one stream in flow.
func BenchmarkOne(b *testing.B) { flow(b, 1, 1) }

// BenchmarkSixteen is sixteen at once on one connection.
func BenchmarkSixteen(b *testing.B) { flow(b, 16, 1) }

// BenchmarkSixteenSpread is the same on up to four connections.
func BenchmarkSixteenSpread(b *testing.B) { flow(b, 16, 4) }

func flow(b *testing.B, streams, connections int) {
	finished := make(chan struct{})
	hub := benched(b, connections, func(st Stream) {
		swallow(st)
		finished <- struct{}{}
	})
	b.SetBytes(sendPayload)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			st, err := hub.OpenStream(b.Context(), nil)
			if err != nil {
				b.Error(err)
				return
			}
			st.CopyFrom(&endless{left: (b.N + i) / streams}, nil)
			st.CloseWrite()
		})
	}
	for range streams {
		<-finished
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkOpenClose opens a stream with a byte, gets it back and closes.
func BenchmarkOpenClose(b *testing.B) {
	hub := benched(b, 1, echo)
	b.ReportAllocs()
	b.ResetTimer()
	buf := make([]byte, 1)
	for range b.N {
		st, err := hub.OpenStream(b.Context(), buf)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(st, buf); err != nil {
			b.Fatal(err)
		}
		st.Close()
	}
}

// BenchmarkPing is a byte there and back on a stream that is open.
func BenchmarkPing(b *testing.B) {
	hub := benched(b, 1, echo)
	st, err := hub.OpenStream(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	b.ReportAllocs()
	b.ResetTimer()
	buf := make([]byte, 1)
	for range b.N {
		if _, err := st.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(st, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPingBesideBulk is the same while another stream fills the connection.
func BenchmarkPingBesideBulk(b *testing.B) {
	hub := benched(b, 1, func(st Stream) {
		if st.Read(make([]byte, 1)); st.(*muxStream).id == 2 {
			swallow(st)
		} else {
			echo(st)
		}
	})
	bulk, err := hub.OpenStream(b.Context(), []byte{1})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { bulk.CopyFrom(&endless{left: 1 << 30}, nil) })
	st, err := hub.OpenStream(b.Context(), []byte{1})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	buf := make([]byte, 1)
	for range b.N {
		if _, err := st.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(st, buf); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	bulk.Reset(0)
	st.Close()
	wg.Wait()
}

// BenchmarkHeader parses a header.
func BenchmarkHeader(b *testing.B) {
	head := [headerSize]byte{frameData, 0, 0x7f, 0xf8, 0, 0, 0, 9}
	for b.Loop() {
		if _, _, err := parseHeader(&head); err != nil {
			b.Fatal(err)
		}
	}
}
