// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Resolver resolves names of endpoints.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// nameBook has what the names of endpoints mean. Only the file's own loop uses it, but for suspect.
type nameBook struct {
	resolver Resolver
	known    map[string]meaning
	at       time.Time   // when they were resolved last
	suspect  atomic.Bool // a member does not answer: its name may mean another address
}

// meaning is what a name resolves to. What was known of it stays while it cannot be resolved.
type meaning struct {
	addrs []netip.Addr
	why   string
}

// hosts lists the names, each once.
func hosts(said []roster.Said) (out []string) {
	seen := map[string]bool{}
	for _, s := range said {
		for _, text := range s.EndpointNames {
			if t, err := policy.ParseTarget(text); err == nil && t.Name != "" && !seen[t.Name] {
				seen[t.Name] = true
				out = append(out, t.Name)
			}
		}
	}
	return out
}

// resolve resolves all names if it is time: side by side, within nameWait.
func (b *nameBook) resolve(ctx context.Context, said []roster.Said, now time.Time) {
	names := hosts(said)
	fresh := slices.ContainsFunc(names, func(n string) bool { _, ok := b.known[n]; return !ok })
	if len(names) == 0 || !fresh && !b.suspect.Load() && now.Sub(b.at) < nameInterval {
		return
	}
	inner, cancel := context.WithTimeout(ctx, nameWait)
	defer cancel()
	places := run.NewLimiter(namesAtOnce)
	found := make([]meaning, len(names))
	g := run.NewGroup(inner)
	for i, name := range names {
		g.Do(func(ctx context.Context) {
			err := places.Acquire(ctx)
			var addrs []netip.Addr
			if err == nil {
				addrs, err = b.resolver.LookupNetIP(ctx, "ip", name)
				places.Release()
			}
			found[i] = b.known[name].next(addrs, err)
		})
	}
	_ = g.Wait() // what failed is in found
	if ctx.Err() != nil {
		return
	}
	b.known, b.at = map[string]meaning{}, now
	for i, name := range names {
		b.known[name] = found[i]
	}
}

// next is what a name means after an answer.
func (m meaning) next(addrs []netip.Addr, err error) meaning {
	var out []netip.Addr
	for _, a := range addrs {
		if a = a.Unmap(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	switch {
	case err != nil:
		return meaning{m.addrs, err.Error()}
	case len(out) == 0:
		return meaning{m.addrs, "it has no address"}
	}
	slices.SortFunc(out, netip.Addr.Compare) // an order that does not turn with each answer
	return meaning{addrs: out[:min(len(out), nameAddresses)]}
}

// add gives members the endpoints that their names mean.
func (b *nameBook) add(said []roster.Said) []roster.Said {
	out := slices.Clone(said)
	for i := range out {
		out[i].Facts.Endpoints = slices.Clone(out[i].Facts.Endpoints)
		for _, text := range out[i].EndpointNames {
			t, err := policy.ParseTarget(text)
			if err != nil {
				continue
			}
			addrs := b.known[t.Name].addrs
			if t.Name == "" {
				addrs = []netip.Addr{t.Addr}
			}
			for _, a := range addrs {
				e := member.Endpoint{Addr: netip.AddrPortFrom(a, t.Port), Kind: member.KindStatic}
				if !slices.Contains(out[i].Facts.Endpoints, e) {
					out[i].Facts.Endpoints = append(out[i].Facts.Endpoints, e)
				}
			}
		}
	}
	return out
}

// problems are the names that cannot be resolved.
func (b *nameBook) problems(said []roster.Said) (out []string) {
	for _, name := range hosts(said) {
		m := b.known[name]
		switch {
		case m.why != "" && len(m.addrs) > 0:
			out = append(out, fmt.Sprintf("%s is not resolved, and its last addresses count: %s", name, m.why))
		case m.why != "":
			out = append(out, fmt.Sprintf("%s is not resolved: %s", name, m.why))
		}
	}
	return out
}

// Suspect says whether a member does not answer: names of endpoints are then resolved with each look at the file.
func (c *Client) Suspect(down bool) {
	if c.list != nil {
		c.list.names.suspect.Store(down)
	}
}
