// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"strings"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
)

// reloads is how the configuration on disk stands to what runs.
type reloads struct {
	loaded  time.Time // when a changed one was taken over last
	refused time.Time
	fault   *fault.Fault // why it was refused; nil once a good one was loaded
	waiting []string     // settings that only the next start takes over
}

// next is how it stands after one more reload. What is refused changes nothing of what
// runs: what waited for a restart still does.
func (r reloads) next(waiting []string, f *fault.Fault, now time.Time) reloads {
	if f != nil {
		r.refused, r.fault = now, f
		return r
	}
	return reloads{loaded: now, waiting: waiting}
}

// into adds it to the status.
func (r reloads) into(s *Status) {
	s.Config = Configuration{Loaded: r.loaded, Refused: r.refused, Fault: admin.BodyOf(r.fault), Waiting: r.waiting}
	if r.fault != nil {
		s.Warnings = append(s.Warnings,
			"the configuration is refused, and the one before stays (SIGHUP loads it again): "+r.fault.Explain())
	}
	if len(r.waiting) > 0 {
		s.Warnings = append(s.Warnings,
			"changed in the configuration, and taken over at the next start only: "+strings.Join(r.waiting, ", "))
	}
}

// reloadLog has how the configuration on disk stands to what runs.
type reloadLog struct {
	mu  sync.Mutex
	now reloads
}

func (l *reloadLog) get() reloads {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *reloadLog) note(waiting []string, f *fault.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.next(waiting, f, time.Now())
}

// Reload takes over what a running node can, and names the settings that need a restart.
func (m *Mesh) Reload(next Config) ([]string, error) {
	if m.parts.Load() == nil {
		return nil, fault.New(fault.CodeStateBusy, "the mesh is not up yet").Hint("load the configuration again in a moment")
	}
	fixed, err := m.ask(reload{next})
	if err != nil {
		return nil, err
	}
	return fixed.([]string), nil
}

// Reloaded notes how a reload of the configuration has ended, whoever found out: which settings
// wait for a restart, or why it was refused.
func (m *Mesh) Reloaded(waiting []string, err error) {
	f := fault.From(err)
	code := fault.Code("")
	if f != nil {
		code = f.Code
	}
	m.metrics.Reloads.WithLabelValues(telemetry.Outcome(code)).Inc()
	m.reloads.note(waiting, f)
}

// policyInto adds the policy between peers to the status.
func policyInto(s *Status, p routing.PolicyStatus) {
	if len(p.Files) > 0 || p.Fault != nil || p.Closed != nil {
		s.Policy = &Policy{Files: p.Files, Rules: p.Rules, Fault: admin.BodyOf(p.Fault), Closed: admin.BodyOf(p.Closed)}
	}
	if p.Fault != nil {
		s.Warnings = append(s.Warnings, "the last good policy stays: "+p.Fault.Explain())
	}
	if p.Closed != nil {
		s.Warnings = append(s.Warnings, "the policy lets nothing new in: "+p.Closed.Explain())
	}
}

// readings are what metrics show about this node itself.
func (m *Mesh) readings() telemetry.MeshReadings {
	return telemetry.MeshReadings{
		Waiting: func() float64 { return float64(len(m.reloads.get().waiting)) },
		Closed: func() float64 {
			n := 0
			s := m.state.Load()
			for _, c := range closedMembers(s.ranges.known, s.set) {
				n += len(c.Ranges)
			}
			return float64(n)
		},
		Dropped: func(reason string) float64 {
			if p := m.parts.Load(); p != nil {
				for _, d := range p.drops() {
					if d.Reason == reason {
						return float64(d.Packets)
					}
				}
			}
			return 0
		},
		Packets: func(direction string) float64 {
			if direction == "sent" {
				return float64(m.use().Sent)
			}
			return float64(m.use().Received)
		},
		Sequence: func() float64 { return float64(m.use().Sequence) },
		IPsec: func(name string) float64 {
			for _, e := range m.ipsecErrors() {
				if e.Name == name {
					return float64(e.Packets)
				}
			}
			return 0
		},
	}
}
