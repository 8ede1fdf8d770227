// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

func newMetrics(reg prometheus.Registerer, a *konnectivity.Agents, order []konnectivity.Strategy,
) *telemetry.KonnectivityServer {
	count := func(of func(tunnels, pending, open int) int) func() float64 {
		return func() float64 { return float64(of(a.Counts())) }
	}
	gauges := telemetry.KonnectivityGauges{
		Ready:       func(s string) float64 { return float64(a.Ready(konnectivity.Strategy(s))) },
		Tunnels:     count(func(tunnels, _, _ int) int { return tunnels }),
		Pending:     count(func(_, pending, _ int) int { return pending }),
		Established: count(func(_, _, open int) int { return open }),
	}
	for _, s := range order {
		gauges.Strategies = append(gauges.Strategies, string(s))
	}
	segments, kinds := konnectivity.Segments(), konnectivity.Kinds()
	m := telemetry.NewKonnectivityServer(reg, segments[:], kinds[:], gauges)
	for _, reason := range []string{konnectivity.NoAgent, konnectivity.ErrorResponse, konnectivity.UnrecognizedResponse,
		konnectivity.SendResponse, konnectivity.BackendClose, konnectivity.BackendTimeout, konnectivity.FrontendClose} {
		m.DialFailures.WithLabelValues(reason)
	}
	for _, o := range []outcome{good, refused, failed} {
		m.Reviews.WithLabelValues(string(o))
	}
	for _, c := range []fault.Code{fault.CodeUnauthorized, fault.CodeLimit, fault.CodeRequest} {
		m.Refused.WithLabelValues(string(c))
	}
	return m
}

// observer counts for a server.
type observer struct{ *Server }

func (o observer) Stream(method string, change int) {
	o.metrics.Streams.WithLabelValues(method).Add(float64(change))
	if method != konnectivity.MethodConnect { // it is a caller's
		o.callers.Add(int64(change))
	}
}

func (o observer) Packet(segment konnectivity.Segment, kind konnectivity.PacketType) {
	o.metrics.Packets.WithLabelValues(konnectivity.Segments()[segment], kind.String()).Inc()
}

func (o observer) Failed(segment konnectivity.Segment, kind konnectivity.PacketType, err error) {
	if errors.Is(err, io.EOF) {
		return // it has ended in order
	}
	o.metrics.Errors.WithLabelValues(konnectivity.Segments()[segment], status.Code(err).String(), kind.String()).Inc()
}

func (o observer) Waits(_ konnectivity.Segment, change int) {
	o.metrics.Waiting.WithLabelValues(konnectivity.MethodConnect).Add(float64(change))
}

func (o observer) Wrote(took time.Duration) { o.metrics.FrontendWrites.Observe(took.Seconds()) }

func (o observer) Connections(int) {} // the gauge is read from the tunnels

func (o observer) Dialled(took time.Duration) { o.metrics.Dials.Observe(took.Seconds()) }

func (o observer) DialFailed(reason string) { o.metrics.DialFailures.WithLabelValues(reason).Inc() }
