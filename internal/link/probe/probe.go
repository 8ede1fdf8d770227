// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/echo"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/link/check"
)

const (
	// atOnce is how many peers are measured at the same time.
	atOnce = 32
	// try is how long one echo may take; one that is lost is repeated once.
	try = 1500 * time.Millisecond
)

// Target is a peer to measure towards.
type Target struct {
	check.Peer
	ID       string     // of the member
	From, To netip.Addr // of the tunnel's echo: overlay addresses
	// Pods are addresses that echoes from this node's pod ranges are sent to; Sure are those that are there.
	Pods []netip.Addr
	Sure []netip.Addr
}

// Server is the DNS Service of a cluster.
type Server struct {
	Cluster string
	At      netip.Addr // invalid: the cluster has no range of Services
}

// Task says what to measure.
type Task struct {
	MTU     int           // of the link, in bytes
	Wait    time.Duration // for the first echo to each peer: its tunnel may have to be made
	Sources []netip.Addr  // addresses of this machine within its pod ranges
	Targets []Target
	Servers []Server
}

// Run measures all at once. What ctx cuts off has no answer.
func Run(ctx context.Context, t Task) (peers []check.Peer, names []check.Names) {
	peers, names = make([]check.Peer, len(t.Targets)), make([]check.Names, len(t.Servers))
	var next atomic.Int64
	g := run.NewGroup(ctx)
	for range min(atOnce, len(peers)+len(names)) {
		g.Do(func(ctx context.Context) {
			for {
				i := int(next.Add(1) - 1)
				switch {
				case i < len(peers):
					peers[i] = t.peer(ctx, t.Targets[i])
				case i < len(peers)+len(names):
					names[i-len(peers)] = ask(ctx, t.Servers[i-len(peers)])
				default:
					return
				}
			}
		})
	}
	_ = g.Wait() // none of them fails
	return peers, names
}

// peer measures towards one.
func (t Task) peer(ctx context.Context, to Target) check.Peer {
	out := to.Peer
	if to.Through == "" {
		out.Echo = first(ctx, to, t.Wait)
		if !out.Echo.Answered {
			return out
		}
	}
	g := run.NewGroup(ctx)
	if to.Through == "" {
		sizes := Sizes(t.MTU)
		out.Sizes = make([]check.Size, len(sizes))
		for i, n := range sizes {
			g.Do(func(ctx context.Context) { out.Sizes[i] = size(ctx, to, n) })
		}
	}
	out.Pods = t.pods(to)
	for i := range out.Pods {
		g.Do(func(ctx context.Context) {
			e := &out.Pods[i]
			e.Answered, e.RTT, e.Why = twice(ctx, e.To, echo.Options{From: e.From}, 0)
		})
	}
	_ = g.Wait()
	return out
}

// pods are the echoes from pod ranges: one source of the same IP version each.
func (t Task) pods(to Target) (out []check.Echo) {
	add := func(all []netip.Addr, sure bool) {
		for _, at := range all {
			i := slices.IndexFunc(t.Sources, func(from netip.Addr) bool { return from.Is4() == at.Is4() })
			if i >= 0 {
				out = append(out, check.Echo{From: t.Sources[i], To: at, Sure: sure})
			}
		}
	}
	add(to.Sure, true)
	add(to.Pods, false)
	return out
}

// first asks until there is an answer or the time is over: the tunnel may be idle.
func first(parent context.Context, to Target, wait time.Duration) check.Echo {
	ctx, cancel := context.WithTimeout(parent, wait)
	defer cancel()
	out := check.Echo{From: to.From, To: to.To, Why: "it is no peer of the mesh"}
	for to.To.IsValid() && ctx.Err() == nil && !out.Answered {
		var err error
		out.Answered, out.RTT, err = once(ctx, to.To, echo.Options{From: to.From}, 0)
		if err != nil {
			out.Why = fault.From(err).What
			if !fault.Has(err, fault.CodeDialTimeout) && !run.Wait(ctx, try/3) {
				break
			}
		}
	}
	return out
}

// Sizes are the packets of a sweep in bytes of IP, the largest first: that of the link, and what is left of it in
// tunnels that are usual on the way.
func Sizes(mtu int) (out []int) {
	for _, n := range []int{mtu, mtu - 20, mtu - 40, mtu - 60, mtu - 80, mtu - 120, 1280, 1200, 1000, 576} {
		if n <= mtu && n >= 576 {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b int) int { return cmp.Compare(b, a) })
	return slices.Compact(out)
}

func size(ctx context.Context, to Target, n int) check.Size {
	out := check.Size{Bytes: n}
	for range 2 {
		answered, _, err := once(ctx, to.To, echo.Options{From: to.From, Whole: true}, n)
		out.Answered, out.TooLarge = answered, errors.Is(err, unix.EMSGSIZE)
		if answered || out.TooLarge {
			break
		}
	}
	return out
}

func twice(ctx context.Context, to netip.Addr, o echo.Options, n int) (answered bool, millis float64, why string) {
	for range 2 {
		ok, took, err := once(ctx, to, o, n)
		if ok {
			return true, took, ""
		}
		why = fault.From(err).What
	}
	return false, 0, why
}

func once(ctx context.Context, to netip.Addr, o echo.Options, n int) (answered bool, millis float64, err error) {
	bound, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	took, err := echo.Ask(bound, to, o, n)
	return err == nil, float64(took.Microseconds()) / 1000, err
}
