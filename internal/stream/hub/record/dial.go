// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// metered is what a stream's rate is asked for.
type metered interface {
	Charge(n int64)
	Excuse() // konnectivity's caller takes no more
}

// Stream is a stream of which a record is kept.
type Stream interface {
	carrier.Stream
	metered
	Watch(left func() (sends, takes bool))
	Start() Start
	// Ended is why it ended, empty for an orderly end, and the ruling of a changed policy that
	// ended it, if one did.
	Ended() (fault.Code, *authz.Ruling)
}

// Start is what is known of a stream from its start.
type Start struct {
	Agent   string
	Backend string         // that carries it in place of an agent
	At      netip.AddrPort // that was dialled
	Rule    string         // by which it lives
	Policy  authz.Version  // that allowed it; unknown without one
}

// Dial is the record of a dial, and the stream that it becomes, whose end writes it.
type Dial struct {
	Stream
	audit    *audit.Writer
	begun    time.Time
	record   audit.Record
	noting   sync.Mutex     // held while the record's metadata changes, or it is written
	said     []reqmeta.Pair // by the caller, with the dial and since
	progress Progress
	up, down splice.Counter
	once     sync.Once
}

// Progress is how far the dial came, for its record.
func (s *Dial) Progress() *Progress { return &s.progress }

// Note keeps what the caller says about the stream while it lives. Of a key the newest value stands.
func (s *Dial) Note(pairs []reqmeta.Pair) error {
	s.noting.Lock()
	defer s.noting.Unlock()
	all := slices.Clone(s.said)
	for _, p := range pairs {
		i := slices.IndexFunc(all, func(old reqmeta.Pair) bool { return old.Key == p.Key })
		if i < 0 {
			all = append(all, p)
			continue
		}
		all[i] = p
	}
	if err := reqmeta.Check(all); err != nil {
		return err
	}
	s.said, s.record.Metadata = all, audit.MetadataOf(all)
	return nil
}

// fail completes the record of what became no stream.
func (s *Dial) fail(err error) {
	f := fault.From(err)
	s.progress.note(&s.record)
	switch fault.ClassOf(f.Code) {
	case fault.Invalid, fault.Unauthenticated, fault.Denied, fault.NotFound, fault.Exhausted:
		s.record.Kind = audit.KindRefusal // an answer of ours or of the agent's, not of the target's
	}
	if f.Code == fault.CodeAudit {
		s.record.Kind = audit.KindRefusal
	}
	if f.Code == fault.CodePolicyDenied {
		s.record.Verdict, s.record.Rule, s.record.Policy = audit.Deny, "", ""
	}
	var by authz.Refusal
	if errors.As(err, &by) {
		s.record.Rule, s.record.Policy = by.Ruling.Rule, by.Ruling.Version.String()
	}
	s.record.Duration = audit.Millis(time.Since(s.begun))
	s.record.End(f)
}

// Opened gives the stream that the dial has become.
func (s *Dial) Opened(inner Stream) carrier.Stream {
	s.Stream = inner
	start := inner.Start()
	s.record.Agent, s.record.Backend = start.Agent, start.Backend
	if start.At.IsValid() {
		s.record.Resolved = start.At.String()
	}
	if start.Policy.Known() {
		s.record.Verdict, s.record.Rule, s.record.Policy = audit.Allow, start.Rule, start.Policy.String()
	}
	return s
}

// ended writes the record; the first reason stands.
func (s *Dial) ended() {
	s.once.Do(func() {
		s.noting.Lock()
		defer s.noting.Unlock()
		s.record.Duration = audit.Millis(time.Since(s.begun))
		s.record.Up, s.record.Down = s.up.Load(), s.down.Load()
		s.record.End(nil)
		if code, by := s.Ended(); code != "" {
			s.record.End(fault.New(code, ""))
			if by != nil && code == fault.CodePolicyDenied {
				s.record.Verdict, s.record.Rule, s.record.Policy = audit.Deny, by.Rule, by.Version.String()
				s.record.Reason = "a changed policy refuses the stream"
			}
		}
		s.audit.Write(s.record)
	})
}

func (s *Dial) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	s.down.Add(int64(n))
	return n, err
}

func (s *Dial) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	s.up.Add(int64(n))
	return n, err
}

func (s *Dial) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	return s.Stream.CopyFrom(src, counted(&s.up, moved))
}

func (s *Dial) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	return s.Stream.CopyTo(dst, counted(&s.down, moved))
}

func (s *Dial) Close() error {
	defer s.ended()
	return s.Stream.Close()
}

func (s *Dial) Reset(code uint32) error {
	defer s.ended()
	return s.Stream.Reset(code)
}

// counted adds what moves to a total, and calls moved, if there is one.
func counted(total *splice.Counter, moved func(int)) func(int) {
	return func(n int) {
		total.Add(int64(n))
		if moved != nil {
			moved(n)
		}
	}
}
