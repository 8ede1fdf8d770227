// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/route/names"
	"github.com/tombolo-io/tombolo/internal/route/netstack"
	"github.com/tombolo-io/tombolo/internal/stream/datagram"
)

// dnsPort is that of the resolver, and of the servers of clusters if nothing else is said.
const dnsPort = 53

// resolver answers questions about the names of clusters with what their own servers say.
type resolver struct {
	table names.Table
	at    []netip.Addr
	log   *slog.Logger
	told  *telemetry.Route
	open  func(ctx context.Context, z names.Zone, network string) (net.Conn, error)
	group *run.Group

	mu        sync.Mutex
	upstreams map[upstreamKey]*upstream
	said      map[string]string // by cluster: why its server was not reached
}

type upstreamKey struct{ cluster, network string }

// serves reports whether questions are taken at an address.
func (v *resolver) serves(at netip.AddrPort) bool {
	return at.Port() == dnsPort && slices.Contains(v.at, at.Addr())
}

// serve answers the questions of one caller until it has none.
func (v *resolver) serve(ctx context.Context, near netstack.Side, network netstack.Network) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer run.OnDone(ctx, func() { near.Close() })()
	idle := time.AfterFunc(askerIdle, cancel)
	defer idle.Stop()
	g := run.NewGroup(ctx)
	slots := make(chan struct{}, askerQuestions)
	turn := make(chan struct{}, 1) // to write
	var split datagram.Splitter
	buf := make([]byte, 4<<10)
	for {
		n, err := near.Read(buf)
		if err == nil {
			err = split.Split(buf[:n], func(d []byte) error {
				idle.Reset(askerIdle)
				query := slices.Clone(d)
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				g.Do(func(ctx context.Context) {
					defer func() { <-slots }()
					text, err := datagram.Append(nil, v.answer(ctx, query, string(network)))
					if err != nil || len(text) == 2 {
						return
					}
					select {
					case turn <- struct{}{}:
						near.Write(text)
						<-turn
					case <-ctx.Done():
					}
				})
				return nil
			})
		}
		if err != nil {
			break
		}
	}
	g.Wait()
	near.Close()
}

// answer is what a question is answered with; nil: with nothing.
func (v *resolver) answer(ctx context.Context, query []byte, network string) []byte {
	count := func(outcome string) { v.told.Names.WithLabelValues(outcome).Inc() }
	q, err := v.table.Ask(query)
	var here *names.Refusal
	switch {
	case errors.As(err, &here):
		count("refused")
		return here.Message
	case err != nil:
		count("malformed")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nameWait)
	defer cancel()
	text, err := v.of(q.Zone, network).ask(ctx, q.Query)
	if err == nil {
		text, err = v.table.Answer(q, text, network == string(netstack.TCP))
	}
	v.say(q.Zone, err)
	if err != nil {
		count("failed")
		return names.Failed(query)
	}
	count(telemetry.Outcome(""))
	return text
}

// say tells once why a cluster's server is not reached.
func (v *resolver) say(z names.Zone, err error) {
	now := ""
	if err != nil {
		now = fault.From(err).Error()
	}
	v.mu.Lock()
	same := v.said[z.Cluster] == now
	v.said[z.Cluster] = now
	v.mu.Unlock()
	switch {
	case same:
	case err != nil:
		v.log.Warn("names of a cluster are not resolved", telemetry.AttrCluster, z.Cluster, telemetry.AttrTarget, z.Server,
			telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, now)
	default:
		v.log.Info("names of a cluster are resolved", telemetry.AttrCluster, z.Cluster, telemetry.AttrTarget, z.Server)
	}
}

// failure is why the last question about names of a cluster had no answer.
func (v *resolver) failure(cluster string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.said[cluster]
}

func (v *resolver) of(z names.Zone, network string) *upstream {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := upstreamKey{z.Cluster, network}
	u := v.upstreams[key]
	if u == nil {
		u = newUpstream(v.group, func(ctx context.Context) (net.Conn, error) { return v.open(ctx, z, network) })
		v.upstreams[key] = u
	}
	return u
}
