// SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// Router is the default gateway, and our address towards it.
type Router struct {
	Gateway, Own netip.Addr
}

// Lease is a port that a router hands on.
type Lease struct {
	External netip.AddrPort
	Lifetime time.Duration
}

// Mapper is a way to ask a router. Port is the node's own; it is the one that is
// wished outside, too.
type Mapper interface {
	Method() string
	Map(ctx context.Context, r Router, port uint16) (Lease, error)
	Unmap(ctx context.Context, r Router, port uint16) error
}

// Mappers lists the ways, the better one first: NAT-PMP is a question and an answer, and
// its mappings end by themselves.
func Mappers() []Mapper { return []Mapper{PMP{}, UPnP{}} }

// try asks each protocol in turn, and says why the others are not used.
func try(ctx context.Context, ways []Mapper, r Router, port uint16) (Mapper, nat.PortMapping) {
	var out nat.PortMapping
	if !r.Gateway.Is4() || !r.Own.Is4() || port == 0 {
		out.Tried = append(out.Tried, nat.Tried{Method: "any", Why: "there is no default gateway of IPv4"})
		return nil, out
	}
	for _, w := range ways {
		lease, err := ask(ctx, w, r, port)
		if err != nil {
			out.Tried = append(out.Tried, nat.Tried{Method: w.Method(), Why: short(err)})
			continue
		}
		out.Tried = append(out.Tried, nat.Tried{Method: w.Method()})
		out.Method, out.External, out.Lifetime = w.Method(), lease.External, lease.Lifetime
		return w, out
	}
	return nil, out
}

// short is an error as a line for people: a router may put anything into it.
func short(err error) string { return untrusted.Text(err.Error(), 200) }

// ask bounds a question in time, and its answer in sense.
func ask(ctx context.Context, w Mapper, r Router, port uint16) (Lease, error) {
	inner, cancel := context.WithTimeout(ctx, gatewayTime)
	defer cancel()
	lease, err := w.Map(inner, r, port)
	if err != nil {
		return Lease{}, err
	}
	if err := plausible(lease.External, r); err != nil {
		// What was mapped is of no use, and is not left behind.
		end, stop := context.WithTimeout(context.WithoutCancel(ctx), gatewayEnd)
		defer stop()
		return Lease{}, errors.Join(err, w.Unmap(end, r, port))
	}
	lease.Lifetime = min(lease.Lifetime, gatewayMost)
	if lease.Lifetime < gatewayLeast {
		return Lease{}, fmt.Errorf("the router maps for %v only", lease.Lifetime)
	}
	return lease, nil
}

// plausible refuses what cannot be the outer endpoint of a router. A private one can: of a
// router behind another.
func plausible(external netip.AddrPort, r Router) error {
	a := external.Addr()
	if !a.Is4() || external.Port() == 0 || !a.IsGlobalUnicast() || a == r.Own || a == r.Gateway ||
		!nat.IsPublic(a) && !a.IsPrivate() && !nat.IsShared(a) {
		return fmt.Errorf("the router says that it maps %v: that cannot be", external)
	}
	return nil
}

// Keeper holds a mapping of one port: it asks, renews at half of the lifetime and at
// least every limit.GatewayLook, asks again when the router has changed, and takes the
// mapping away at the end.
type Keeper struct {
	Ways   []Mapper
	Port   uint16
	Router func() (Router, error) // as it is now
	Tell   func(nat.PortMapping)  // each time that something is new
	Asked  func(nat.PortMapping)  // each time that the router was asked, after Tell; may be nil
}

// Run keeps the mapping until ctx ends. Changed asks for a look at the router now.
func (k Keeper) Run(ctx context.Context, changed <-chan struct{}) error {
	var last nat.PortMapping
	var by Mapper
	var of Router
	told := false
	for {
		r, err := k.Router()
		if by != nil && r != of {
			k.remove(ctx, by, of)
		}
		var next nat.PortMapping
		if err != nil {
			by, next = nil, nat.PortMapping{Tried: []nat.Tried{{Method: "any", Why: short(err)}}}
		} else {
			by, next = try(ctx, k.Ways, r, k.Port)
		}
		of = r
		if ctx.Err() != nil {
			k.remove(ctx, by, of)
			return nil
		}
		if !told || !same(last, next) {
			k.Tell(next)
			last, told = next, true
		}
		if k.Asked != nil {
			k.Asked(next)
		}
		if !sleep(ctx, changed, k.next(next)) {
			k.remove(ctx, by, of)
			return nil
		}
	}
}

func (k Keeper) next(p nat.PortMapping) time.Duration {
	if p.Method == "" {
		return limit.GatewayAgain
	}
	return min(p.Lifetime/2, limit.GatewayLook)
}

// same compares what people and peers see; the lifetime counts down in between.
func same(a, b nat.PortMapping) bool {
	if a.Method != b.Method || a.External != b.External || len(a.Tried) != len(b.Tried) {
		return false
	}
	for i := range a.Tried {
		if a.Tried[i] != b.Tried[i] {
			return false
		}
	}
	return true
}

func (k Keeper) remove(ctx context.Context, by Mapper, r Router) {
	if by == nil {
		return
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatewayEnd)
	defer cancel()
	_ = by.Unmap(end, r, k.Port) // else it ends by itself
}

func sleep(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-changed:
	}
	return true
}

// Check asks once, and takes the mapping away again: for a report.
func Check(ctx context.Context, ways []Mapper, r Router, port uint16) nat.PortMapping {
	by, out := try(ctx, ways, r, port)
	if by != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatewayEnd)
		defer cancel()
		_ = by.Unmap(end, r, port) // else it ends by itself
	}
	return out
}
