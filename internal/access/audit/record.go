// SPDX-License-Identifier: Apache-2.0

// Package audit writes and reads the records of who reached what: one line of JSON
// for each dial and each refusal (docs/reference/audit.md). It decides nothing and
// never blocks a stream; records that it cannot keep are counted and reported.
package audit

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// Version is the version of the format.
const Version = 1

// Kind is the event that a record describes.
type Kind string

// The kinds.
const (
	KindDial    Kind = "dial"    // a dial that was tried, with its stream if there was one
	KindRefusal Kind = "refusal" // a request that was refused without a dial
	KindLost    Kind = "lost"    // records that could not be kept

	KindRevocation Kind = "revocation" // an operator has revoked an identity
	KindRemoval    Kind = "removal"    // an operator has removed a cluster
	KindMove       Kind = "move"       // an operator has moved a cluster to another backend
	KindWireGuard  Kind = "wireguard"  // an operator has changed a cluster's WireGuard, or taken keys of it
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{KindDial, KindRefusal, KindLost, KindRevocation, KindRemoval, KindMove, KindWireGuard}
}

// The values of At: the end of the session that wrote the record.
const (
	AtHub   = "hub"
	AtAgent = "agent"
	AtEdge  = "edge"
)

// The values of Verdict; empty: no policy was consulted.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Record is one line. It has no field for headers, tokens or stream data, and what a
// caller chose is bounded and cleaned when it is written.
type Record struct {
	Version     int       `json:"v"`
	Time        time.Time `json:"time"` // start of the event
	ID          string    `json:"id"`   // set by the Writer; consecutive within one run of the process
	Kind        Kind      `json:"kind"`
	At          string    `json:"at,omitempty"`
	Hub         string    `json:"hub,omitempty"`
	Agent       string    `json:"agent,omitempty"`
	Backend     string    `json:"backend,omitempty"` // that carried it in place of an agent
	Cluster     string    `json:"cluster,omitempty"`
	Frontend    string    `json:"frontend,omitempty"`
	Caller      string    `json:"caller,omitempty"`
	Operator    string    `json:"operator,omitempty"` // SPIFFE URI of an operator's certificate
	Serial      string    `json:"serial,omitempty"`   // of the caller's certificate
	Source      string    `json:"source,omitempty"`   // the caller's transport address
	Peer        *Peer     `json:"peer,omitempty"`
	Egress      string    `json:"egress,omitempty"`
	Metadata    Metadata  `json:"metadata,omitzero"`
	Traceparent string    `json:"traceparent,omitempty"`
	Subject     string    `json:"subject,omitempty"` // the object of an operator's change
	Network     string    `json:"network,omitempty"` // udp or icmp; empty: tcp
	Asked       string    `json:"asked,omitempty"`
	Resolved    string    `json:"resolved,omitempty"`
	Verdict     string    `json:"verdict,omitempty"`
	Rule        string    `json:"rule,omitempty"`
	Policy      string    `json:"policy,omitempty"` // the version of the policy with the rule
	Duration    Millis    `json:"durationMillis,omitempty"`
	Up          int64     `json:"bytesUp,omitempty"`   // from the caller to the target
	Down        int64     `json:"bytesDown,omitempty"` // from the target to the caller
	Code        string    `json:"code,omitempty"`      // how it ended: ok, or a fault code
	Reason      string    `json:"reason,omitempty"`    // the fault's text

	Count int64     `json:"count,omitempty"` // number of lost records
	Since time.Time `json:"since,omitzero"`  // time of the first lost record
}

// Peer is the process at the other end of a unix socket, as the kernel reported it
// when it connected.
type Peer struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	PID int32  `json:"pid"`
}

// End sets code and reason; nil is an orderly end. Of the fault's texts it takes
// only What: Why may quote what a caller sent, such as a header line.
func (r *Record) End(f *fault.Fault) {
	if f == nil {
		r.Code, r.Reason = telemetry.Outcome(""), ""
		return
	}
	r.Code, r.Reason = telemetry.Outcome(f.Code), f.What
}

// clean bounds every text and removes what may contain a secret.
func (r *Record) clean() {
	r.Version, r.Time, r.Since = Version, instant(r.Time), instant(r.Since)
	r.Duration -= r.Duration % Millis(time.Microsecond)
	for _, s := range []*string{&r.ID, (*string)(&r.Kind), &r.At, &r.Hub, &r.Agent, &r.Backend, &r.Cluster,
		&r.Frontend, &r.Caller,
		&r.Operator, &r.Subject, &r.Serial, &r.Source, &r.Network, &r.Egress, &r.Resolved, &r.Verdict, &r.Rule, &r.Policy,
		&r.Code, &r.Reason} {
		*s = clip(*s, limit.AuditText)
	}
	r.Asked = clip(Destination(r.Asked), limit.AuditText)
	if !reqmeta.IsTraceparent(r.Traceparent) {
		r.Traceparent = ""
	}
}

// instant is a time as it is written: in UTC, to the microsecond.
func instant(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Microsecond)
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}

// Destination strips from an address what a malformed request may put around it:
// user and password before an @, a path or a query after it.
func Destination(s string) string {
	if i := strings.IndexAny(s, "/?#"); i >= 0 {
		s = s[:i]
	}
	return s[strings.LastIndexByte(s, '@')+1:]
}

// clip truncates a text at a character boundary. Non-printing characters stay: they
// are escaped when the record is written.
func clip(s string, n int) string {
	return untrusted.Clip(strings.ToValidUTF8(s[:min(len(s), n+utf8.UTFMax)], string(utf8.RuneError)), n)
}
