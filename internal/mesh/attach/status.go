// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
)

// Status shows the certificate and the hubs.
type Status struct {
	Enabled        bool      // there is a certificate, or a line to get one with
	Identity       string    // URI of the certificate; empty: none yet
	Cluster        string    // of the certificate
	CertificateEnd time.Time // zero without one
	NextRenewal    time.Time
	Fault          *fault.Fault   // why there is no certificate, no newer one, or why hubs do not want it
	Mark           *fault.Fault   // why sockets bear no mark
	Hubs           []relay.Status // by hub, and addresses that no hub is known to be behind
}

// Status shows the present state.
func (a *Attach) Status() Status {
	a.mu.Lock()
	s := Status{Enabled: a.line != nil || a.me.Joined(), Fault: cmp.Or(a.barred, a.last), Mark: a.mark}
	if me := a.me; me.Joined() {
		s.Identity, s.Cluster, s.CertificateEnd, s.NextRenewal = me.Who.URI(), me.Who.Cluster.String(),
			me.Cert.NotAfter, me.RenewAt()
	}
	a.mu.Unlock()
	s.Hubs = a.client.Status()
	return s
}

func (a *Attach) readings() telemetry.MeshRelayReadings {
	count := func(of func(relay.Totals) int64) func() float64 {
		return func() float64 { return float64(of(a.client.Totals())) }
	}
	return telemetry.MeshRelayReadings{
		Hubs:          func() float64 { return float64(a.client.Totals().Connected) },
		Sent:          count(func(t relay.Totals) int64 { return t.Sent }),
		Received:      count(func(t relay.Totals) int64 { return t.Received }),
		SentBytes:     count(func(t relay.Totals) int64 { return t.SentBytes }),
		ReceivedBytes: count(func(t relay.Totals) int64 { return t.ReceivedBytes }),
		Absent:        count(func(t relay.Totals) int64 { return t.Absent }),
		Dropped: func(reason string) float64 {
			t := a.client.Totals()
			return float64(map[string]int64{"away": t.DroppedAway, "queue": t.DroppedQueue, "size": t.DroppedOdd}[reason])
		},
		CertificateEnd: func() float64 {
			if me := a.identity(); me.Joined() {
				return float64(me.Cert.NotAfter.Unix())
			}
			return 0
		},
	}
}
