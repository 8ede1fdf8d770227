// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// hubStream counts a stream's bytes for its session and ends its accounting once.
type hubStream struct {
	carrier.Stream
	parts   *parts
	by      bearer
	request policy.Request               // with the address that the agent says it dialled
	rule    string                       // by which it lives
	version authz.Version                // of the policy that allowed it
	against atomic.Pointer[authz.Ruling] // of a changed policy, by which it ended
	places  quota.Grant
	in, out quota.Throttle // where it pays for what is written and read
	waits   atomic.Int64   // bytes that a frontend holds for it
	caller  *quota.Account // among the places
	heard   atomic.Bool    // the caller has all that the target sent, and its end
	begun   time.Time
	once    sync.Once
	ended   fault.Code                  // set when the accounting has ended
	why     atomic.Pointer[fault.Fault] // of an end by the hub's own will
}

// Request, Allowed and Overrule are for the policy, which is asked again when it changes.
func (s *hubStream) Request() policy.Request { return s.request }

// Allowed is described at Request.
func (s *hubStream) Allowed(r authz.Ruling) { s.rule, s.version = r.Rule, r.Version }

// Overrule is described at Request.
func (s *hubStream) Overrule(r authz.Ruling) {
	s.against.Store(&r)
	s.Reset(splice.ResetCode(fault.CodePolicyDenied))
}

// bearer carries streams: the session of an agent, a port of the hub, or a backend.
type bearer interface {
	of() *cluster
	// counts are for all that is written to its streams, and read from them.
	counts() (written, read *splice.Counter)
	// pays starts what a stream pays for its bytes, and gives the account of its caller.
	pays(s *hubStream) *quota.Account
	start(s *hubStream) record.Start
	// left takes a stream out of what counts as live.
	left()
}

// Start and Ended are for the record.
func (s *hubStream) Start() record.Start {
	out := s.by.start(s)
	out.Rule, out.Policy = s.rule, s.version
	return out
}

func (s *session) of() *cluster { return s.cluster }

func (s *session) counts() (written, read *splice.Counter) { return &s.up, &s.down }

func (s *session) pays(t *hubStream) *quota.Account {
	return t.places.Start(&t.in, &t.out, s.link.Done())
}

func (s *session) start(t *hubStream) record.Start {
	return record.Start{Agent: s.agent.String(), At: netip.AddrPortFrom(t.request.Addr, t.request.Port)}
}

func (s *session) left() {
	s.streams.Add(-1)
	s.beat.Busy(-1)
}

// Ended is described at Start.
func (s *hubStream) Ended() (fault.Code, *authz.Ruling) { return s.ended, s.against.Load() }

// release ends the accounting; the first reason stands, empty for an orderly end.
func (s *hubStream) release(code fault.Code) {
	s.once.Do(func() {
		s.ended = code
		s.in.End()
		s.out.End()
		s.places.Finish()
		s.parts.access.Leave(s.by.of().name, s)
		s.by.left()
		s.parts.metrics.Streams.Dec()
		s.parts.metrics.StreamEnds.WithLabelValues(telemetry.Outcome(code)).Inc()
	})
}

func (s *hubStream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	_, read := s.by.counts()
	read.Add(int64(n))
	s.out.Pay(n)
	return n, s.told(err)
}

func (s *hubStream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	written, _ := s.by.counts()
	written.Add(int64(n))
	s.in.Pay(n)
	return n, s.told(err)
}

func (s *hubStream) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	written, _ := s.by.counts()
	moved = counting(written, moved)
	srcErr, err = s.Stream.CopyFrom(src, func(n int) {
		moved(n)
		s.in.Pay(n) // the source is not read meanwhile
		s.forsaken()
	})
	return srcErr, s.told(err)
}

func (s *hubStream) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	_, read := s.by.counts()
	dstErr, err = s.Stream.CopyTo(s.out.Writer(dst), counting(read, moved))
	s.heard.Store(dstErr == nil)
	return dstErr, s.told(err)
}

// counting adds what moves to a total, and calls moved, if there is one.
func counting(total *splice.Counter, moved func(int)) func(int) {
	return func(n int) {
		total.Add(int64(n))
		if moved != nil {
			moved(n)
		}
	}
}

func (s *hubStream) Close() error {
	defer s.release("")
	return s.Stream.Close()
}

func (s *hubStream) Reset(code uint32) error {
	s.release(splice.ResetReason(code)) // first: the reset wakes the reader, which closes
	if s.ended != "" {
		code = splice.ResetCode(s.ended) // the agent learns the first reason, too
	}
	return s.Stream.Reset(code)
}

// SetDeadline, SetReadDeadline and SetWriteDeadline end a wait for a rate as well.
func (s *hubStream) SetDeadline(t time.Time) error {
	s.in.SetDeadline(t)
	s.out.SetDeadline(t)
	return s.Stream.SetDeadline(t)
}

// SetReadDeadline is described at SetDeadline.
func (s *hubStream) SetReadDeadline(t time.Time) error {
	s.out.SetDeadline(t)
	return s.Stream.SetReadDeadline(t)
}

// SetWriteDeadline is described at SetDeadline.
func (s *hubStream) SetWriteDeadline(t time.Time) error {
	s.in.SetDeadline(t)
	return s.Stream.SetWriteDeadline(t)
}

// hold takes over what the dial held of its accounts.
func (s *hubStream) hold(p *quota.Grant) {
	s.places = *p
	s.caller = s.by.pays(s)
	if h, ok := s.Stream.(carrier.Holder); ok && s.caller != nil {
		h.Tally(s.caller.UnreadTally())
	}
}

// Watch says how to ask whether the caller has left; it is called before anything is
// copied. A caller that sends no more may still want to read.
func (s *hubStream) Watch(left func() (sends, takes bool)) {
	s.in.Left = func() bool { sends, _ := left(); return sends || s.alone() }
	s.out.Left = func() bool { _, takes := left(); return takes }
}

// Excuse says that the caller takes no more: what the target still sends is read to be
// thrown away, and waits for no rate.
func (s *hubStream) Excuse() {
	s.out.Excuse()
	if below, ok := s.Stream.(interface{ Excuse() }); ok { // konnectivity's agents are told
		below.Excuse()
	}
}

// alone says that the caller is gone altogether. After the end of the target's direction
// nobody knows: a caller that has ended its own may wait for the target to have it all.
func (s *hubStream) alone() bool { return !s.heard.Load() && s.out.Left != nil && s.out.Left() }

// forsaken ends a stream whose caller is gone altogether, and was found to be while it
// waited for its rate. What it had sent and nobody read goes with it: at once it would
// be beyond the rate, for others to pay, and one after another keep the places of who is
// not there any more.
func (s *hubStream) forsaken() {
	if s.in.Excused() && s.alone() {
		s.Reset(splice.ResetCode(fault.CodeStreamReset))
	}
}

// Begun is when the stream began.
func (s *hubStream) Begun() time.Time { return s.begun }

// Cut ends a stream by the hub's will: its reader and its writer get the reason.
func (s *hubStream) Cut(why *fault.Fault) {
	s.why.CompareAndSwap(nil, why)
	s.Reset(splice.ResetCode(why.Code))
}

func (s *hubStream) told(err error) error {
	if why := s.why.Load(); why != nil && err != nil {
		return why
	}
	return err
}

// Held is what the stream has in memory beside itself.
func (s *hubStream) Held() int64 {
	n := s.waits.Load()
	if h, ok := s.Stream.(carrier.Holder); ok {
		n += h.Held()
	}
	return n
}

// UnreadBytes is what the stream has of its cluster's and its caller's unread bytes.
func (s *hubStream) UnreadBytes() int64 {
	n := s.waits.Load()
	if h, ok := s.Stream.(carrier.Holder); ok {
		n += h.Unread()
	}
	return n
}

// Charge counts bytes that a frontend holds until the stream takes them.
func (s *hubStream) Charge(n int64) {
	s.waits.Add(n)
	s.by.of().accounts.Charge(s.caller, n)
}
