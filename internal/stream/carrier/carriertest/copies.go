// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func copyCases() []Case {
	return []Case{
		{Name: "copies", body: copies},
		{Name: "copy from sources of every kind", body: copySources},
		{Name: "copy from a source that fails", body: copyFailingSource},
		{Name: "copy to a sink that fails", body: copyFailingSink(func(f *fussy) io.Writer { return f })},
		{Name: "copy when the stream ends", body: copyEndedStream},
		{Name: "copy from a patient source", body: copyPatient},
		{Name: "copy to a prompt sink", body: copyPrompt},
		{Name: "copy to a prompt sink that fails", body: copyFailingSink(func(f *fussy) io.Writer {
			return &prompt{Writer: f, rng: seeded(3)}
		})},
	}
}

var (
	errBroken = errors.New("broken")
	errNoRoom = errors.New("a buffer without room")
)

// copies carries bytes through CopyFrom, CopyTo and a loop back, and counts them.
func copies(t *testing.T, p Pair) {
	const size = 1 << 20
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		var sent, returned atomic.Int64
		o := own(t)
		o.do("copy from", func() error {
			srcErr, err := near.CopyFrom(&source{of: 1, size: size, rng: seeded(1)}, func(n int) { sent.Add(int64(n)) })
			if srcErr != io.EOF {
				err = errors.Join(err, errors.New("the source did not end with io.EOF"), srcErr)
			}
			return errors.Join(err, near.CloseWrite())
		})
		o.do("echo", func() error {
			dstErr, err := far.CopyTo(far, nil)
			if err != io.EOF {
				return errors.Join(errors.New("the stream did not end with io.EOF"), dstErr, err)
			}
			return errors.Join(dstErr, far.CloseWrite())
		})
		back := &sink{of: 1}
		dstErr, err := near.CopyTo(back, func(n int) { returned.Add(int64(n)) })
		if dstErr != nil || err != io.EOF || back.got != size {
			t.Errorf("%d bytes came back, then %v, %v", back.got, dstErr, err)
			near.Reset(1)
		}
		o.wait()
		if sent.Load() != size || returned.Load() != size {
			t.Errorf("counted %d bytes out and %d in, want %d", sent.Load(), returned.Load(), size)
		}
	})
	emptied(t, p)
}

// copySources: a reader may give bytes together with its end, one at a time, or none at all.
func copySources(t *testing.T, p Pair) {
	want := content(2).first(2000)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"plain":         func(r io.Reader) io.Reader { return r },
		"with its end":  iotest.DataErrReader,
		"byte by byte":  iotest.OneByteReader,
		"halves":        iotest.HalfReader,
		"empty reads":   func(r io.Reader) io.Reader { return &lazy{r: r} },
		"writes itself": func(r io.Reader) io.Reader { return struct{ *bytes.Reader }{r.(*bytes.Reader)} }, // has WriteTo
	} {
		for _, d := range p.sides() {
			near, far := link(t, d.from, d.to)
			moved := 0
			srcErr, err := near.CopyFrom(wrap(bytes.NewReader(want)), func(n int) { moved += n })
			if srcErr != io.EOF || err != nil || moved != len(want) {
				t.Fatalf("%s: moved %d, %v, %v", name, moved, srcErr, err)
			}
			near.CloseWrite()
			if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: got %d bytes, %v", name, len(got), err)
			}
			near.Close()
			far.Close()
		}
	}
	emptied(t, p)
}

// lazy gives nothing, and no error, every other time.
type lazy struct {
	r   io.Reader
	odd bool
}

func (l *lazy) Read(b []byte) (int, error) {
	if l.odd = !l.odd; l.odd {
		return 0, nil
	}
	return l.r.Read(b)
}

// copyFailingSource: the failure is the source's, what came before it is sent,
// and the stream lives.
func copyFailingSource(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		want := content(3).first(100_000)
		for _, src := range []io.Reader{
			io.MultiReader(bytes.NewReader(want[:50_000]), iotest.ErrReader(errBroken)),
			&lastWords{want[50_000:60_000]},
		} {
			if srcErr, err := near.CopyFrom(src, nil); !errors.Is(srcErr, errBroken) || err != nil {
				t.Fatalf("got %v, %v; want the source's failure", srcErr, err)
			}
		}
		if _, err := near.Write(want[60_000:]); err != nil {
			t.Fatal(err)
		}
		near.CloseWrite()
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	})
	emptied(t, p)
}

// lastWords gives bytes together with its failure.
type lastWords struct{ b []byte }

func (l *lastWords) Read(b []byte) (int, error) {
	n := copy(b, l.b)
	if l.b = l.b[n:]; len(l.b) == 0 {
		return n, errBroken
	}
	return n, nil
}

// fussy takes some writes and then none; with half, it takes half of the first one too many.
type fussy struct {
	writes int
	half   bool
	took   int
}

func (f *fussy) Write(b []byte) (int, error) {
	n := len(b)
	if f.writes--; f.writes < 0 {
		if n = 0; f.half {
			n = len(b) / 2
		}
	}
	f.took += n
	if n < len(b) {
		return n, errBroken
	}
	return n, nil
}

// copyFailingSink: the failure is the sink's, what it took is counted, and the
// rest of the stream can still be read. sink makes the destination of one that fails.
func copyFailingSink(sink func(*fussy) io.Writer) func(t *testing.T, p Pair) {
	return func(t *testing.T, p Pair) {
		both(t, p, func(t *testing.T, near, far carrier.Stream) {
			const size = 1 << 20
			o := own(t)
			o.do("write", func() error { return send(near, 4, size, seeded(4)) })
			took := 0
			for _, dst := range []*fussy{{writes: 0}, {writes: 2}, {writes: 1, half: true}} {
				moved := 0
				dstErr, err := far.CopyTo(sink(dst), func(n int) { moved += n })
				if !errors.Is(dstErr, errBroken) || err != nil {
					t.Errorf("got %v, %v; want the sink's failure", dstErr, err)
				}
				if moved != dst.took {
					t.Errorf("counted %d bytes, and the sink took %d", moved, dst.took)
				}
				took += moved
			}
			rest, err := io.Copy(io.Discard, onlyReader{far})
			if err != nil || rest+int64(took) > size || rest == 0 {
				t.Errorf("after %d bytes %d more could be read, then %v", took, rest, err)
				near.Reset(1)
			}
			o.wait()
		})
		emptied(t, p)
	}
}

// copyEndedStream: the stream's own failure is told from that of the other party.
func copyEndedStream(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		o := own(t)
		ends := make(chan [2]error, 2)
		o.do("copy from", func() error {
			srcErr, err := far.CopyFrom(&source{of: 1, size: 1 << 40, rng: seeded(1)}, nil)
			ends <- [2]error{srcErr, err}
			return nil
		})
		o.do("copy to", func() error {
			dstErr, err := far.CopyTo(io.Discard, nil)
			ends <- [2]error{dstErr, err}
			return nil
		})
		if _, err := io.ReadFull(near, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		near.Reset(5)
		for range 2 {
			got := <-ends
			isReset(t, "copy", got[1], 5)
			if got[0] != nil {
				t.Errorf("the other party failed with %v", got[0])
			}
		}
		o.wait()
	})
	emptied(t, p)
}

// copyPrompt: all bytes come in order, whatever the sink takes without waiting.
func copyPrompt(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		const size = 4 << 20
		o := own(t)
		o.do("write", func() error { return send(near, 7, size, seeded(7)) })
		got, moved := &sink{of: 7}, 0
		dst := &prompt{Writer: got, rng: seeded(8)}
		dstErr, err := far.CopyTo(dst, func(n int) { moved += n })
		if dstErr != nil || err != io.EOF || got.got != size || moved != size {
			t.Errorf("%d bytes came, %d were counted, then %v, %v", got.got, moved, dstErr, err)
			near.Reset(1)
		}
		if _, lacks := p.Lacks[PromptSinks]; !lacks && dst.now.Load() == 0 {
			t.Error("nothing was written without waiting")
		}
		o.wait()
	})
	emptied(t, p)
}

// copyPatient: a source that waits for bytes before it asks for a buffer.
func copyPatient(t *testing.T, p Pair) {
	p.without(t, PatientSources)
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		const size = 1 << 20
		src := &patient{ctx: within(t), ready: make(chan int), rng: seeded(1)}
		o := own(t)
		o.do("copy from", func() error {
			moved := 0
			srcErr, err := near.CopyFrom(src, func(n int) { moved += n })
			if srcErr != io.EOF || moved != size {
				t.Errorf("moved %d, then %v", moved, srcErr)
			}
			return errors.Join(err, near.CloseWrite())
		})
		o.do("feed", func() error {
			defer close(src.ready)
			for left := size; left > 0; {
				n := min(left, chunk(src.rng))
				src.ready <- n
				left -= n
			}
			return nil
		})
		if err := wantAll(far, 5, size, seeded(2)); err != nil {
			t.Error(err)
		}
		o.wait()
		if src.asked == 0 || src.vain == 0 {
			t.Errorf("the source was asked %d times, %d of them in vain", src.asked, src.vain)
		}
	})
	emptied(t, p)
}

// patient is silent until it is fed. It checks that a buffer is given when it
// is asked for, and sometimes gives one back unused.
type patient struct {
	ctx    context.Context
	ready  chan int // sizes
	rng    *rand.Rand
	offset int64
	left   int
	asked  int
	vain   int
}

func (s *patient) Read([]byte) (int, error) {
	return 0, errors.New("a patient source was read with a buffer in hand")
}

func (s *patient) ReadWhenReady(take func() []byte, give func()) (int, error) {
	if s.left == 0 {
		select {
		case n, ok := <-s.ready:
			if !ok {
				return 0, io.EOF
			}
			s.left = n
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
	if s.asked++; s.asked%4 == 1 { // as a socket that was said to have bytes and then has none
		if len(take()) == 0 {
			return 0, errNoRoom
		}
		give()
		s.vain++
		return 0, nil
	}
	b := take()
	if len(b) == 0 {
		return 0, errNoRoom
	}
	n := min(len(b), s.left)
	content(5).fill(b[:n], s.offset)
	s.offset += int64(n)
	s.left -= n
	return n, nil
}
