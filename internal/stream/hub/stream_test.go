// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// What a stream carries counts for its session, and for the one who asks to be
// told, whichever way it is carried.
func TestStreamCountsWhatItCarries(t *testing.T) {
	const question, answer = "a question", "the answer to it"
	for name, carry := range map[string]func(t *testing.T, s *hubStream, moved *splice.Counter){
		"read and write": func(t *testing.T, s *hubStream, moved *splice.Counter) {
			if _, err := io.WriteString(s, question); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(struct{ io.Reader }{s})
			if err != nil || string(got) != answer {
				t.Fatalf("read %q, %v", got, err)
			}
			moved.Add(int64(len(question) + len(got)))
		},
		"copies": func(t *testing.T, s *hubStream, moved *splice.Counter) {
			count := func(n int) { moved.Add(int64(n)) }
			if srcErr, err := s.CopyFrom(strings.NewReader(question), count); srcErr != io.EOF || err != nil {
				t.Fatalf("copy from: %v, %v", srcErr, err)
			}
			var got strings.Builder
			if dstErr, err := s.CopyTo(&got, count); dstErr != nil || err != io.EOF || got.String() != answer {
				t.Fatalf("copied %q: %v, %v", got.String(), dstErr, err)
			}
		},
		"copies that nobody follows": func(t *testing.T, s *hubStream, moved *splice.Counter) {
			s.CopyFrom(strings.NewReader(question), nil)
			s.CopyTo(io.Discard, nil)
			moved.Add(int64(len(question) + len(answer)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := tcpPair(t)
			s := &hubStream{Stream: fakeStream{near}, by: &session{}}
			if _, err := io.WriteString(far, answer); err != nil {
				t.Fatal(err)
			}
			far.CloseWrite()
			var moved splice.Counter
			carry(t, s, &moved)
			got := make([]byte, len(question))
			if _, err := io.ReadFull(far, got); err != nil || string(got) != question {
				t.Errorf("the far end read %q, %v", got, err)
			}
			if up, down := s.by.(*session).up.Load(), s.by.(*session).down.Load(); up != int64(len(question)) || down != int64(len(answer)) || moved.Load() != up+down {
				t.Errorf("%d up, %d down, %d in all", up, down, moved.Load())
			}
		})
	}
}

// A deadline holds for who waits for a rate as for who waits for bytes.
func TestDeadlinesHoldForRates(t *testing.T) {
	at := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		set     func(s *hubStream) error
		in, out bool
	}{
		"both":  {func(s *hubStream) error { return s.SetDeadline(at) }, true, true},
		"read":  {func(s *hubStream) error { return s.SetReadDeadline(at) }, false, true},
		"write": {func(s *hubStream) error { return s.SetWriteDeadline(at) }, true, false},
	} {
		near, _ := tcpPair(t)
		s := &hubStream{Stream: fakeStream{near}, by: &session{}}
		if err := c.set(s); err != nil {
			t.Fatal(err)
		}
		if in, out := s.in.Deadline().Equal(at), s.out.Deadline().Equal(at); in != c.in || out != c.out {
			t.Errorf("%s: in %v, out %v", name, in, out)
		}
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
			s := &hubStream{Stream: fakeStream{near}, by: &session{}}
			s.once.Do(func() {}) // it has no accounts
			l := quota.Defaults()
			l.Cluster.In = limit.RateLeast
			book := quota.NewBook(clusterOf(t, "c1"), l, carrier.NewBudget(limit.ClusterUnread), func(quota.Scope, quota.Resource) {}, new(atomic.Bool))
			if _, err := s.places.Take(book.Cluster, 0); err != nil {
				t.Fatal(err)
			}
			s.places.Start(&s.in, &s.out, nil)
			s.in.Charge(2 * limit.RateLeast) // others have used it up
			s.heard.Store(c.heard)
			s.Watch(func() (sends, takes bool) { return c.sends, c.takes })
			const all = 4 * limit.RateLeast
			srcErr, err := s.CopyFrom(io.LimitReader(bytes.NewReader(make([]byte, all)), all), nil)
			if (err != nil) != c.ends || (srcErr == io.EOF) == c.ends {
				t.Errorf("the source: %v, the stream: %v", srcErr, err)
			}
			if n := s.by.(*session).up.Load(); (n < all/2) != c.ends {
				t.Errorf("%d bytes were carried on", n)
			}
		})
	}
}
