// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// bulk moves bytes through a throttle in chunks until the time is over, and gives how many.
func bulk(to *Throttle, chunk int, over time.Time) (n int64) {
	for time.Now().Before(over) {
		n += int64(chunk)
		to.Pay(chunk)
	}
	return n
}

func shapers(rates ...int64) (s [3]*shaper, stalls *atomic.Int64) {
	stalls = &atomic.Int64{}
	for i, r := range rates {
		s[i] = newShaper(func() { stalls.Add(1) })
		s[i].setRate(r)
	}
	return s, stalls
}

func near(got, want int64, percent int64) bool {
	return got >= want-want*percent/100 && got <= want+want*percent/100
}

func TestARateIsKeptAndShared(t *testing.T) {
	for name, c := range map[string]struct {
		rates  []int64
		chunks []int // of each stream
		want   int64 // bytes a second of all together
	}{
		"one stream":                          {[]int64{1 << 20}, []int{32 << 10}, 1 << 20},
		"many streams have equal shares":      {[]int64{1 << 20}, []int{32 << 10, 32 << 10, 32 << 10, 32 << 10}, 1 << 20},
		"large pieces get no more than small": {[]int64{1 << 20}, []int{64 << 10, 16 << 10}, 1 << 20},
		"the lowest of several rates":         {[]int64{4 << 20, 1 << 20, 8 << 20}, []int{32 << 10, 32 << 10}, 1 << 20},
		"a rate below a chunk":                {[]int64{4 << 10}, []int{32 << 10}, 4 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const seconds = 60
				s, stalls := shapers(c.rates...)
				over := time.Now().Add(seconds * time.Second)
				moved := make([]int64, len(c.chunks))
				var wg sync.WaitGroup
				for i, chunk := range c.chunks {
					wg.Go(func() { moved[i] = bulk(&Throttle{to: s}, chunk, over) })
				}
				wg.Wait()
				sum, each := int64(0), c.want*seconds/int64(len(c.chunks))
				for i, n := range moved {
					sum += n
					if !near(n, each, 12) && c.want > 64<<10 {
						t.Errorf("stream %d moved %d, its share is %d", i, n, each)
					}
				}
				burst := c.want + int64(64<<10*len(c.chunks))
				if sum < c.want*seconds*95/100 || sum > c.want*seconds*102/100+burst || stalls.Load() == 0 {
					t.Errorf("%d bytes in %d s at %d a second, %d stalls", sum, seconds, c.want, stalls.Load())
				}
			})
		})
	}
}

// A keystroke does not stand in line behind downloads; downloads do not dress up as
// keystrokes.
func TestSmallStreamsGoAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := shapers(256 << 10)
		over := time.Now().Add(30 * time.Second)
		var wg sync.WaitGroup
		var sum atomic.Int64
		for range 50 {
			wg.Go(func() { sum.Add(bulk(&Throttle{to: s}, 32<<10, over)) })
		}
		typing := &Throttle{to: s}
		for time.Now().Before(over) {
			began := time.Now()
			typing.Pay(100)
			if waited := time.Since(began); waited > 0 {
				t.Fatalf("a keystroke waited %v", waited)
			}
			time.Sleep(50 * time.Millisecond)
		}
		wg.Wait()
		if want := int64(30 * 256 << 10); sum.Load() > want*103/100+50*32<<10 {
			t.Errorf("%d bytes, %d may pass", sum.Load(), want)
		}
		// Very many of them keep to the rate as well.
		s, _ = shapers(16 << 10)
		over = time.Now().Add(30 * time.Second)
		sum.Store(0)
		for range 100 {
			wg.Go(func() { sum.Add(bulk(&Throttle{to: s}, 1<<10, over)) })
		}
		wg.Wait()
		if want := int64(30 * 16 << 10); sum.Load() > want+3*16<<10+100<<10 {
			t.Errorf("small ones moved %d, %d may pass", sum.Load(), want)
		}
	})
}

// A wait is over at once when its stream ends, its deadline passes, or the rate goes.
func TestAWaitEndsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		act   func(to *Throttle, s *shaper)
		after time.Duration
	}{
		"the stream ends":        {func(to *Throttle, _ *shaper) { to.End() }, 0},
		"a deadline is set back": {func(to *Throttle, _ *shaper) { to.SetDeadline(time.Unix(1, 0)) }, 0},
		"a deadline comes":       {func(to *Throttle, _ *shaper) { to.SetDeadline(time.Now().Add(time.Second)) }, time.Second},
		"the rate is lifted":     {func(_ *Throttle, s *shaper) { s.setRate(Unbounded) }, 0},
		"the rate is raised":     {func(_ *Throttle, s *shaper) { s.setRate(1 << 30) }, time.Second},
		"a deadline that is far off": {func(to *Throttle, _ *shaper) {
			to.SetDeadline(time.Now().Add(time.Hour))
			to.SetDeadline(time.Time{})
			to.End()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := shapers(1 << 10)
				to := &Throttle{to: s}
				to.Pay(1 << 20) // the burst, and then some
				done := make(chan time.Time)
				go func() {
					to.Pay(1 << 20)
					done <- time.Now()
				}()
				synctest.Wait()
				select {
				case <-done:
					t.Fatal("nobody waited")
				default:
				}
				began := time.Now()
				c.act(to, s[0])
				if waited := (<-done).Sub(began); waited > c.after+2*time.Millisecond {
					t.Errorf("it ended after %v", waited)
				}
				if _, waiting := s[0].used(); waiting != 0 {
					t.Errorf("%d stand in line still", waiting)
				}
			})
		})
	}
}

// Who leaves without paying has used the rate: a series of short streams is held to
// it like a long one.
func TestShortStreamsPayAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := shapers(64 << 10)
		for range 100 {
			to := &Throttle{to: s}
			to.End()
			to.Pay(64 << 10)
		}
		began := time.Now()
		(&Throttle{to: s}).Pay(32 << 10)
		if waited := time.Since(began); waited < 90*time.Second {
			t.Errorf("the next one waited %v", waited)
		}
	})
}

// Without a rate nothing is counted, locked or kept.
func TestWithoutARateNothingIsDone(t *testing.T) {
	s, stalls := shapers(Unbounded, Unbounded, Unbounded)
	to := &Throttle{to: s}
	var out bytes.Buffer
	w := to.Writer(&out)
	if n := testing.AllocsPerRun(100, func() { to.Pay(1 << 30) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if _, err := io.WriteString(w, "x"); err != nil || stalls.Load() != 0 {
		t.Errorf("%v, %d stalls", err, stalls.Load())
	}
	if used, _ := s[0].used(); used != 0 || s[0].filled != 0 {
		t.Errorf("%d counted", used)
	}
	if _, ok := w.(carrier.PromptWriter); ok {
		t.Error("a writer that may have to wait looks prompt")
	}
}

type promptBuffer struct{ bytes.Buffer }

func (b *promptBuffer) WriteNow(p []byte) (int, error) { return b.Write(p) }

// Who reads the connection of a session for all is never kept waiting: at the bound
// a prompt writer takes nothing.
func TestAPromptWriterNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := shapers(1<<10, Unbounded)
		to := &Throttle{to: s}
		var out promptBuffer
		w, ok := to.Writer(&out).(carrier.PromptWriter)
		if !ok {
			t.Fatal("a prompt writer lost what it can")
		}
		began := time.Now()
		for range 10 {
			if _, err := w.WriteNow(make([]byte, 600)); err != nil {
				t.Fatal(err)
			}
		}
		if out.Len() != 1200 || time.Since(began) != 0 {
			t.Errorf("%d bytes went through in %v", out.Len(), time.Since(began))
		}
		s[0].setRate(Unbounded) // while the stream lives
		if n, err := w.WriteNow(make([]byte, 1<<20)); n != 1<<20 || err != nil {
			t.Errorf("without the rate %d, %v", n, err)
		}
	})
}
