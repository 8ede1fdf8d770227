// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestWhoHasLeftDoesNotWait: of a thousand streams that would wait for a quarter of an
// hour at the lowest rate, those that have left go on at the next look, those whose
// session ends at once, and neither waits again. The bytes of both are paid for by who
// is still there.
func TestWhoHasLeftDoesNotWait(t *testing.T) {
	for name, leave := range map[string]struct {
		how   func(all []*toll, gone func(), lost chan struct{})
		after time.Duration
	}{
		"callers":   {func(_ []*toll, gone func(), _ chan struct{}) { gone() }, limit.ShapeLook},
		"a session": {func(_ []*toll, _ func(), lost chan struct{}) { close(lost) }, 0},
		"streams that end": {func(all []*toll, _ func(), _ chan struct{}) {
			for _, x := range all {
				x.end()
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, chunk, each = 1000, 64 << 10, limit.RateLeast
				s := newShaper(func() {})
				s.setRate(each)
				s.charge(each, new(pace)) // or the first one who pays would not wait
				defer s.setRate(unbounded)
				var mu sync.Mutex
				away, lost := false, make(chan struct{})
				left := func() bool { mu.Lock(); defer mu.Unlock(); return away }
				gone := func() { mu.Lock(); defer mu.Unlock(); away = true }
				all := make([]*toll, n)
				var wait sync.WaitGroup
				for i := range all {
					x := &toll{to: [3]*shaper{s}, lost: lost, left: left}
					all[i] = x
					wait.Go(func() { x.pay(chunk) })
				}
				stays := &toll{to: [3]*shaper{s}, left: func() bool { return false }}
				paid := make(chan struct{})
				go func() { defer close(paid); stays.pay(chunk); stays.pay(chunk) }()
				synctest.Wait()
				if _, waiting := s.used(); waiting != n+1 {
					t.Fatalf("%d wait", waiting)
				}
				begin := time.Now()
				leave.how(all, gone, lost)
				wait.Wait()
				if took := time.Since(begin); took > leave.after {
					t.Errorf("it took %v", took)
				}
				if name != "streams that end" {
					begin = time.Now()
					all[0].pay(chunk)
					if took := time.Since(begin); took != 0 {
						t.Errorf("who has left waits %v again", took)
					}
				}
				select {
				case <-paid:
					t.Error("nobody pays for what they moved")
				default:
				}
				if _, waiting := s.used(); waiting > 1 {
					t.Errorf("%d wait still", waiting)
				}
				<-paid
				if took := time.Since(begin); took < n*time.Second/2 {
					t.Errorf("the rate was exceeded: all is paid after %v", took)
				}
			})
		})
	}
}

// TestAnUploadOfWhoIsGoneEndsWithIt: what a caller had sent that is gone altogether is not
// carried on beyond the rate; that of one who only sends no more is, and waits.
func TestAnUploadOfWhoIsGoneEndsWithIt(t *testing.T) {
	for name, c := range map[string]struct{ sends, takes, heard, ends bool }{
		"gone altogether":      {false, true, false, true},
		"gone, and all read":   {true, true, false, true},
		"has nothing to say":   {true, false, false, false},
		"sends no more":        {false, false, false, false},
		"and the target also":  {false, true, true, false},
		"and nothing is there": {true, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := tcpPair(t)
			go io.Copy(io.Discard, far)
			in := newShaper(func() {})
			in.setRate(limit.RateLeast)
			in.charge(2*limit.RateLeast, new(pace)) // others have used it up
			s := &hubStream{Stream: fakeStream{near}, session: &session{}}
			s.once.Do(func() {}) // it has no accounts
			s.in.to[0] = in
			s.heard.Store(c.heard)
			s.Watch(func() (sends, takes bool) { return c.sends, c.takes })
			const all = 4 * limit.RateLeast
			srcErr, err := s.CopyFrom(io.LimitReader(bytes.NewReader(make([]byte, all)), all), nil)
			if (err != nil) != c.ends || (srcErr == io.EOF) == c.ends {
				t.Errorf("the source: %v, the stream: %v", srcErr, err)
			}
			if n := s.session.up.Load(); (n < all/2) != c.ends {
				t.Errorf("%d bytes were carried on", n)
			}
		})
	}
}
