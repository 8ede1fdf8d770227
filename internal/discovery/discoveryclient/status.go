// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"net/netip"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// State is the state of a source.
type State string

// The states.
const (
	StateConnecting State = "connecting"
	StateAttending  State = "attending" // it reports members
	StateAway       State = "away"      // and is tried again
	StateBroken     State = "broken"    // its file cannot be read; what it said before counts
	StateOff        State = "off"
)

// The kinds of sources.
const (
	KindService      = "service"
	KindFile         = "file"
	KindCache        = "cache"
	KindKubernetes   = "kubernetes"
	KindAnnouncement = "announcement" // no source: it is about this node alone
)

// Status is what operators see of a source.
type Status struct {
	Source      string         `json:"source"`
	Kind        string         `json:"kind"`
	URL         string         `json:"url,omitempty"`
	Protocol    Protocol       `json:"protocol,omitempty"`
	Cluster     string         `json:"cluster,omitempty"`
	State       State          `json:"state"`
	Code        fault.Code     `json:"code,omitempty"`
	Reason      string         `json:"reason,omitempty"`
	Since       time.Time      `json:"since,omitzero"`
	LastContact time.Time      `json:"lastContact,omitzero"`
	Settled     bool           `json:"settled,omitempty"` // it knows all members
	Observed    netip.AddrPort `json:"observed,omitzero"` // where the service sees us
	Members     int            `json:"members"`
	Errors      int            `json:"errors,omitempty"`  // sessions that failed
	Junk        int            `json:"junk,omitempty"`    // what could not be read
	Stale       int            `json:"stale,omitempty"`   // what was older than what is known
	Refused     string         `json:"refused,omitempty"` // why the service does not take our announcement
	Warning     string         `json:"warning,omitempty"` // needs attention, though the source reports members
	// Announced is until when the service knows this node, by what it took last.
	Announced time.Time `json:"announcedUntil,omitzero"`
	// LastError is why the last session failed; it stays when another one is well.
	LastError *Failure `json:"lastError,omitempty"`
}

// Failure is an error that may be over.
type Failure struct {
	Code   fault.Code `json:"code"`
	Reason string     `json:"reason"`
	At     time.Time  `json:"at"`
}

// statusBoard holds the status of a source.
type statusBoard struct {
	mu sync.Mutex
	s  Status
}

func (b *statusBoard) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}

func (b *statusBoard) init(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s = s
}

// warn says what needs attention, or nothing.
func (b *statusBoard) warn(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.Warning = text
}

// set reports whether it is another state, or another reason.
func (b *statusBoard) set(state State, why *fault.Fault) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.s
	if b.s.State = state; state != before.State {
		b.s.Since = time.Now()
	}
	b.s.Code, b.s.Reason = "", ""
	if why != nil {
		b.s.Code, b.s.Reason = why.Code, why.Error()
		b.s.LastError = &Failure{why.Code, why.Error(), time.Now().Round(0)}
		b.s.Errors++
	}
	return before.State != b.s.State || before.Code != b.s.Code
}

// begin says that a session begins; one that is tried again stays away until then.
func (b *statusBoard) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.s.State == "" || b.s.State == StateOff {
		b.s.State, b.s.Since = StateConnecting, time.Now()
	}
}

func (b *statusBoard) attending(p Protocol, at netip.AddrPort) {
	b.set(StateAttending, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.Protocol, b.s.Observed, b.s.LastContact = p, at, time.Now()
}

func (b *statusBoard) contact() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.LastContact = time.Now()
}

func (b *statusBoard) settled(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.Settled = yes
}

// refused reports whether it is another reason.
func (b *statusBoard) refused(f *fault.Fault) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.s.Refused
	b.s.Refused = ""
	if f != nil {
		b.s.Refused = f.Error()
	}
	return b.s.Refused != before
}

// took says that the service has taken our announcement, and for how long.
func (b *statusBoard) took(lease time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.Refused = ""
	if b.s.Announced = time.Now().Add(lease); lease == 0 {
		b.s.Announced = time.Time{}
	}
}

func (b *statusBoard) passed(how hearing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if how == heardStale {
		b.s.Stale++
		return
	}
	b.s.Junk++
}
