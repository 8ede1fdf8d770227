// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/test/roles"
)

// The targets of a discovery service.
const (
	mostPerMember = 2.0 // KB beyond what it sent
	mostSeen      = 2.0 // p99 of a join with many members, of the same with few
	leastUpdates  = 0.5 // of an empty echo
	mostWatch     = 2.0 // of plain gRPC that sends the same bytes

	watchersOfJoins = 10
)

// meeting is a discovery service.
type meeting struct {
	*roles.Process
	r       *runner
	args    discoveryArgs
	members *roles.Process
}

// newMeeting starts a discovery service without members.
func (r *runner) newMeeting(ctx context.Context, members int) (m *meeting, err error) {
	dir, err := r.lab.Dir()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "d"); err != nil {
		return nil, err
	}
	m = &meeting{r: r, args: discoveryArgs{Dir: dir, Listen: r.address(8446), Admin: r.address(8447), Members: members, Locks: r.profile}}
	r.sites++
	return m, m.start(ctx)
}

func (m *meeting) start(ctx context.Context) (err error) {
	if m.Process, err = roles.Spawn(m.r.lab.Here(), roleDiscovery, "discovery"); err != nil {
		return err
	}
	return m.Call(ctx, opStart, 0, m.args, nil)
}

// over ends processes; some may not have been started.
func over(all ...*roles.Process) {
	for _, p := range all {
		if p != nil {
			p.End()
		}
	}
	for _, p := range all {
		if p != nil {
			p.Wait()
		}
	}
}

func (m *meeting) over() {
	if m != nil {
		over(m.Process)
	}
}

func (m *meeting) look(ctx context.Context) (l meetingLook, err error) {
	if err := pause(ctx, m.r.meeting.settle); err != nil {
		return l, err
	}
	return l, m.Call(ctx, opLook, 0, nil, &l)
}

// takeMembers grows members, and looks at their memory and at how soon others see
// one that joins.
func takeMembers(ctx context.Context, r *runner) error {
	members, err := roles.Spawn(r.lab.Here(), roleMembers, "members")
	if err != nil {
		return err
	}
	defer over(members)
	few, err := r.newMeeting(ctx, 0)
	defer few.over()
	if err != nil {
		return err
	}
	large, err := r.newMeeting(ctx, 2*r.meeting.large)
	defer large.over()
	if err != nil {
		return err
	}
	many, err := r.newMeeting(ctx, 0)
	defer many.over()
	if err != nil {
		return err
	}
	for _, m := range []*meeting{few, large, many} {
		m.members = members
	}
	if err := few.fill(ctx, fillArgs{Prefix: "joins", Clusters: 1, Members: usual}); err != nil {
		return err
	}
	if err := large.grow(ctx, "in one cluster", true, []int{r.meeting.large}); err != nil {
		return err
	}
	if err := many.grow(ctx, fmt.Sprintf("in clusters of %d", usual), false, r.meeting.members); err != nil {
		return err
	}
	if err := many.fill(ctx, fillArgs{Prefix: "joins", Clusters: 1, Members: usual}); err != nil {
		return err
	}
	return r.joins(ctx, few, large, many)
}

func (m *meeting) fill(ctx context.Context, args fillArgs) error {
	args.To = m.args.Listen
	return m.members.Call(ctx, opFill, 5*time.Minute, args, nil)
}

// grow brings members up to each step, in one cluster or in ever more of them, and
// takes their memory. Zero is a service that has served a few already: what gRPC
// takes once is no member's.
func (m *meeting) grow(ctx context.Context, name string, one bool, steps []int) error {
	if err := m.fill(ctx, fillArgs{Prefix: "warm", Clusters: 1, Members: usual}); err != nil {
		return err
	}
	zero, err := m.look(ctx)
	if err != nil {
		return err
	}
	var l meetingLook
	have := 0
	for _, n := range steps {
		args := fillArgs{Prefix: "many", First: have / usual, Clusters: (n - have) / usual, Members: usual}
		if one {
			args = fillArgs{Prefix: "joins", Clusters: 1, Members: n}
		}
		if err := m.fill(ctx, args); err != nil {
			return err
		}
		have = n
		if l, err = m.look(ctx); err != nil {
			return err
		}
		if l.Members-zero.Members != n {
			return fmt.Errorf("the service has %d members of %d", l.Members-zero.Members, n)
		}
		each := func(now, then int64) float64 { return float64(now-then) / float64(n) / 1000 }
		m.r.say("%-10s %6d: %s: %.2f KB each and %.2f KB live, %.2f KB of both are what they sent", "members", n, name,
			each(l.Resident, zero.Resident), each(l.Live, zero.Live), each(l.Bytes-accounted*int64(n), zero.Bytes))
		if err := m.r.results.Add(record{Measurement: "members", At: n, Case: name, Values: map[string]float64{
			"rss": float64(l.Resident - zero.Resident), "rssSettled": float64(l.look.Settled - zero.look.Settled),
			"live": float64(l.Live - zero.Live), "sent": float64(l.Bytes - zero.Bytes - accounted*int64(n)),
		}}); err != nil {
			return err
		}
	}
	beyond := func(now, then int64) float64 {
		return float64(now-then-l.Bytes+zero.Bytes)/float64(have)/1000 + accounted/1000.0
	}
	where := grouped(have) + " " + name
	if err := m.r.line(line{name: "RSS of a member beyond its own bytes, " + where, value: beyond(l.Resident, zero.Resident), target: mostPerMember, unit: " KB"}); err != nil {
		return err
	}
	return m.r.line(line{name: "live memory of a member beyond its own bytes, " + where, value: beyond(l.Live, zero.Live), target: mostPerMember, unit: " KB"})
}

// joins takes the three in turn, so that what else the machine does meets all.
func (r *runner) joins(ctx context.Context, few, large, many *meeting) error {
	var p99 [3][]float64
	for range r.meeting.rounds {
		for i, m := range []*meeting{few, large, many} {
			var l latency
			args := joinArgs{To: m.args.Listen, Cluster: clusterID("joins", 0), Watchers: watchersOfJoins, Joins: r.meeting.joins}
			if err := m.members.Call(ctx, opJoin, time.Minute, args, &l); err != nil {
				return err
			}
			p99[i] = append(p99[i], float64(l.P99))
			name := []string{"few", "large", "many"}[i]
			if err := r.results.Add(record{Measurement: "joins", Case: name, At: r.meeting.joins, Values: map[string]float64{
				"p50": l.P50.Seconds(), "p99": l.P99.Seconds(), "max": l.Max.Seconds(),
			}}); err != nil {
				return err
			}
			r.say("%-10s %6d: %s: p50 %v, p99 %v, at most %v", "joins", r.meeting.joins, name, l.P50.Round(time.Microsecond), l.P99.Round(time.Microsecond), l.Max.Round(time.Microsecond))
		}
	}
	base, big, value := middle(p99[0]), middle(p99[1]), middle(p99[2])
	return r.line(line{
		name:  fmt.Sprintf("p99 from a join until %d watchers see it, with %s members elsewhere, of that without", watchersOfJoins, grouped(r.meeting.members[len(r.meeting.members)-1])),
		value: value / base, target: mostSeen,
		note: fmt.Sprintf("%.2f ms, without %.2f ms, in a cluster of %s %.2f ms", value/1e6, base/1e6, grouped(r.meeting.large), big/1e6),
	})
}

// middle is the median.
func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// startEcho starts the measure.
func (r *runner) startEcho(ctx context.Context, whole []byte) (p *roles.Process, at string, err error) {
	if p, err = roles.Spawn(r.lab.Here(), roleEcho, "echo"); err != nil {
		return nil, "", err
	}
	at = r.address(8446)
	r.sites++
	return p, at, p.Call(ctx, opStart, 0, echoArgs{Listen: at, Whole: whole, Locks: r.profile}, nil)
}

// profile leaves profiles of the service beside what is done, if the run shall have any.
func (m *meeting) profile(ctx context.Context, name string, do func() error) (err error) {
	if !m.r.options.profile {
		return do()
	}
	path, err := filepath.Abs(filepath.Join(m.r.out, "profiles", "scale-"+name))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var perr error
	d := max(m.r.meeting.updates, 100*time.Millisecond)
	wg.Go(func() { perr = m.Call(ctx, opProfile, d, profileArgs{Path: path, For: d}, nil) })
	err = do()
	wg.Wait()
	return errors.Join(err, perr)
}

// takeWatchers lets a service restart in order, and all of its watchers come to
// the next at once. Plain gRPC that sends each the same bytes is their measure.
func takeWatchers(ctx context.Context, r *runner) error {
	var crews []*roles.Process
	defer func() { over(crews...) }()
	for range 2 {
		p, err := roles.Spawn(r.lab.Here(), roleMembers, "watchers")
		if err != nil {
			return err
		}
		crews = append(crews, p)
	}
	m, err := r.newMeeting(ctx, 0)
	defer func() { m.over() }()
	if err != nil {
		return err
	}
	m.members = crews[0]
	if err := m.fill(ctx, fillArgs{Prefix: "w", Clusters: r.meeting.watched, Members: usual}); err != nil {
		return err
	}
	all, err := r.watchAll(ctx, crews, m.args.Listen)
	if err != nil {
		return err
	}
	var ours, plain []float64
	for range r.meeting.rounds {
		if all, err = m.comeBack(ctx, crews); err != nil {
			return err
		}
		naked, err := r.plainly(ctx, crews, int(all.Bytes)/r.meeting.watchers)
		if err != nil {
			return err
		}
		ours, plain = append(ours, all.All.Seconds()), append(plain, naked.All.Seconds())
		r.say("%-10s %6d: %.1f MB in %.2f s; plain gRPC: %.1f MB in %.2f s", "watchers", r.meeting.watchers, float64(all.Bytes)/1e6, all.All.Seconds(), float64(naked.Bytes)/1e6, naked.All.Seconds())
		if err := r.results.Add(record{Measurement: "watchers", At: r.meeting.watchers, Values: map[string]float64{
			"seconds": all.All.Seconds(), "bytes": float64(all.Bytes), "plainSeconds": naked.All.Seconds(), "plainBytes": float64(naked.Bytes),
		}}); err != nil {
			return err
		}
	}
	took, bare := middle(ours), middle(plain)
	return r.line(line{
		name:  fmt.Sprintf("%s watchers of %s clusters come back, of plain gRPC that sends the same bytes", grouped(r.meeting.watchers), grouped(r.meeting.watched)),
		value: took / bare, target: mostWatch,
		note: fmt.Sprintf("%.2f s, plain %.2f s, %.0f MB: %.0f MB/s, plain %.0f MB/s", took, bare, float64(all.Bytes)/1e6, float64(all.Bytes)/1e6/took, float64(all.Bytes)/1e6/bare),
	})
}

// watchAll lets the watchers of all processes come at once.
func (r *runner) watchAll(ctx context.Context, crews []*roles.Process, to string) (out watchResult, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, len(crews))
	for i, p := range crews {
		wg.Go(func() {
			var one watchResult
			n := r.meeting.watchers / len(crews)
			errs[i] = p.Call(ctx, opWatch, time.Minute, watchArgs{To: to, Prefix: "w", Clusters: r.meeting.watched, Watchers: n, Connections: max(1, n/100)}, &one)
			mu.Lock()
			defer mu.Unlock()
			out.Bytes += one.Bytes
			out.All = max(out.All, one.All)
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

func leaveAll(ctx context.Context, crews []*roles.Process) (err error) {
	for _, p := range crews {
		err = errors.Join(err, p.Call(ctx, opLeave, 0, nil, nil))
	}
	return err
}

// comeBack restarts the service, and lets its watchers come when it listens again:
// the time that a start takes is nobody's.
func (m *meeting) comeBack(ctx context.Context, crews []*roles.Process) (out watchResult, err error) {
	if err := m.Call(ctx, opStop, time.Minute, nil, nil); err != nil {
		return out, err
	}
	over(m.Process)
	if err := leaveAll(ctx, crews); err != nil { // the ends of lost streams
		return out, err
	}
	if err := m.start(ctx); err != nil {
		return out, err
	}
	if err := m.profile(ctx, fmt.Sprintf("watchers-%d", m.r.meeting.watchers), func() (err error) {
		out, err = m.r.watchAll(ctx, crews, m.args.Listen)
		return err
	}); err != nil {
		return out, err
	}
	var l meetingLook
	if err := m.Call(ctx, opLook, 0, nil, &l); err != nil {
		return out, err
	}
	if l.Members != m.r.meeting.watched*usual || !l.Settled {
		return out, fmt.Errorf("after the restart the service has %d members of %d", l.Members, m.r.meeting.watched*usual)
	}
	return out, nil
}

// plainly is the same with a server that knows nothing else.
func (r *runner) plainly(ctx context.Context, crews []*roles.Process, each int) (out watchResult, err error) {
	p, at, err := r.startEcho(ctx, make([]byte, each))
	defer over(p)
	if err != nil {
		return out, err
	}
	out, err = r.watchAll(ctx, crews, at)
	return out, errors.Join(err, leaveAll(ctx, crews))
}
