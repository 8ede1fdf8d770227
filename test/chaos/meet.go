// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/test/lab"
)

// meeting is a discovery service, or several that share etcd, under everything
// that goes wrong, with members that write and watchers that read, in both protocols.
type meeting struct {
	*world // of which there is no hub here
	title  string
	list   []mishap
	door   func(i int) string // where callers of a number come in

	chr      *chronicle
	distance distance
	gates    []*gate
	watchers []*watcher
	direct   []*direct // watchers of one replica alone
	members  []*member
	jump     atomic.Int64 // of the clock of native members
	keys     seal.Keys    // of a native cluster
	lease    time.Duration
	length   time.Duration
	counts   map[string]int
	guards   []func(ctx context.Context) // what goes on beside
	ends     []func()                    // of what was started
}

const (
	meetingClusters = 2 // of each protocol
	meetingMembers  = 6 // of each; in so small a cluster a first answer is never old
	meetingWatchers = 2 // of each
)

// newMeeting is one without a service.
func (d *driver) newMeeting(l *lab.Lab, title string) (m *meeting, err error) {
	m = &meeting{world: &world{driver: d, lab: l}, title: title, chr: &chronicle{deeds: map[string][]deed{}}, counts: map[string]int{}}
	// Longer than the service stands still, and shorter than members are silent.
	m.lease = max(2*time.Second, (2 * d.pace.fault).Truncate(time.Second))
	if m.dir, err = l.Dir(); err != nil {
		return m, err
	}
	if m.dir, err = os.MkdirTemp(m.dir, "meet"); err != nil {
		return m, err
	}
	if m.program, err = filepath.Abs(d.program); err != nil {
		return m, err
	}
	m.host = fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(60), rand.IntN(256), 1+rand.IntN(250)) // no seed: another run may have it
	return m, nil
}

// player is the chance of one meeting.
func (d *driver) player(number uint64) *rand.Rand {
	return rand.New(rand.NewPCG(d.seed, uint64(os.Getpid())+number))
}

// settle is how long a service waits that began without its state.
func (m *meeting) settle() time.Duration { return min(m.lease, 3*time.Second) }

// serves waits until a process does, or has ended.
func (m *meeting) serves(ctx context.Context, p *lab.Process, what string, holds func() bool) error {
	ended := false
	err := m.until(ctx, what+" serves", func() bool {
		select {
		case <-p.Done():
			ended = true
		default:
		}
		return ended || holds()
	})
	if ended {
		return fmt.Errorf("%s has ended", what)
	}
	return err
}

func (m *meeting) close() error {
	for _, w := range m.watchers {
		w.conn.Close()
	}
	for _, w := range m.direct {
		if w.watcher != nil {
			w.conn.Close()
		}
	}
	for _, g := range m.gates {
		g.end()
	}
	for _, end := range m.ends {
		end()
	}
	for _, one := range m.members {
		one.speaker.close()
	}
	return m.world.close()
}

// gather makes the members and watchers of all clusters.
func (m *meeting) gather(r *rand.Rand) error {
	for i := range meetingClusters {
		if err := m.cluster(i, r); err != nil {
			return err
		}
	}
	return nil
}

// cluster makes those of a cluster of each protocol.
func (m *meeting) cluster(number int, r *rand.Rand) error {
	secret, err := seal.NewSecret(crand.Reader)
	if err != nil {
		return err
	}
	keys, names := secret.Keys(), map[string]string{}
	m.keys = keys
	older, native := fmt.Sprintf("older%d", number), fmt.Sprintf("native%d", number)
	for i := range meetingMembers {
		name := fmt.Sprintf("m%d", i)
		conn, err := dialService(m.door(i))
		if err != nil {
			return err
		}
		m.join(older+"/"+name, &olderSpeaker{conn: conn, cluster: older, member: name}, r)
		key, err := seal.NewMemberKey(crand.Reader)
		if err != nil {
			return err
		}
		if conn, err = dialService(m.door(i)); err != nil {
			return err
		}
		id := key.ID()
		names[string(id[:])] = name
		m.join(native+"/"+name, &nativeSpeaker{conn: conn, keys: keys, member: key, jump: &m.jump}, r)
	}
	kinds := []*watcher{{of: older, once: watchOlder}, {of: native, once: watchNative(keys), names: names}}
	for i := range meetingWatchers {
		g, err := newGate(m.host+":0", func() string { return m.door(i) })
		if err != nil {
			return err
		}
		m.gates = append(m.gates, g)
		for _, kind := range kinds {
			w, err := m.watcher(kind, fmt.Sprintf("w%d", i), g.address())
			if err != nil {
				return err
			}
			m.watchers = append(m.watchers, w)
		}
	}
	if number > 0 {
		return nil
	}
	for _, one := range m.direct {
		if one.watcher, err = m.watcher(kinds[one.number%2], fmt.Sprintf("direct%d", one.number), one.at); err != nil {
			return err
		}
	}
	return nil
}

func (m *meeting) join(who string, s speaker, r *rand.Rand) {
	m.members = append(m.members, &member{who: who, speaker: s, c: m.chr, ttl: m.lease, r: rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))})
}

func (m *meeting) watcher(kind *watcher, name, at string) (*watcher, error) {
	conn, err := dialService(at)
	if err != nil {
		return nil, err
	}
	return &watcher{name: kind.of + "/" + name, of: kind.of, conn: conn, c: m.chr, once: kind.once, names: kind.names}, nil
}

// mishap is something that goes wrong with a discovery service or on the way to it.
type mishap struct {
	name  string
	needs func() (why string) // it is left out; nil: nothing
	do    func(ctx context.Context, r *rand.Rand) error
}

// common are the mishaps of watchers and members, whatever the services are.
func (m *meeting) common() []mishap {
	return []mishap{
		{name: "watchers are cut off, and nobody says so", do: func(ctx context.Context, r *rand.Rand) error {
			for _, g := range m.gates {
				g.shut(r.IntN(2) == 0)
			}
			run.Wait(ctx, m.pace.fault)
			for _, g := range m.gates {
				g.shut(false)
			}
			return nil
		}},
		{name: "watchers lose their connections", do: func(context.Context, *rand.Rand) error {
			for _, g := range m.gates {
				g.cut()
			}
			return nil
		}},
		{name: "the clocks of members jump by an hour, and back", do: func(ctx context.Context, _ *rand.Rand) error {
			m.jump.Store(int64(time.Hour))
			run.Wait(ctx, m.pace.fault/2)
			m.jump.Store(-int64(time.Hour))
			run.Wait(ctx, m.pace.fault/2)
			m.jump.Store(0)
			return nil
		}},
	}
}

// play lets members and watchers live under mishaps, each in turn, until the time
// is over. Then all say their last word, and every watcher must come to see it.
func (m *meeting) play(ctx context.Context) error {
	m.say("%s", m.title)
	watching, enough := context.WithCancel(ctx)
	defer enough()
	var watchers, members sync.WaitGroup
	defer watchers.Wait()
	defer enough() // before the wait
	for _, w := range m.all() {
		watchers.Go(func() { w.live(watching) })
	}
	for _, guard := range m.guards {
		watchers.Go(func() { guard(watching) })
	}
	living, quiet := context.WithCancel(ctx)
	defer members.Wait()
	defer quiet() // before the wait
	finals := make([]uint64, len(m.members))
	errs := make([]error, len(m.members))
	for i, one := range m.members {
		members.Go(func() { finals[i], errs[i] = one.live(living) })
	}
	if err := m.mishaps(ctx); err != nil {
		return err
	}
	m.say("the last words")
	quiet()
	members.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	want := map[string]map[string]uint64{}
	for i, one := range m.members {
		of := clusterOf(one.who)
		if want[of] == nil {
			want[of] = map[string]uint64{}
		}
		if finals[i] > 0 {
			want[of][one.who] = finals[i]
		}
	}
	missed := m.missed(ctx, want)
	enough()
	watchers.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.judge(missed)
	return nil
}

// all are the watchers through the gates and those of one replica.
func (m *meeting) all() []*watcher {
	out := append([]*watcher(nil), m.watchers...)
	for _, one := range m.direct {
		out = append(out, one.watcher)
	}
	return out
}

func (m *meeting) mishaps(ctx context.Context) error {
	r := rand.New(rand.NewPCG(m.seed, 2))
	for began := time.Now(); ; {
		r.Shuffle(len(m.list), func(i, j int) { m.list[i], m.list[j] = m.list[j], m.list[i] })
		for _, f := range m.list {
			if f.needs != nil {
				if why := f.needs(); why != "" {
					m.say("%s: left out: %s", f.name, why)
					continue
				}
			}
			run.Wait(ctx, m.pace.calm+m.pace.fault/2)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.say("%s", f.name)
			if err := f.do(ctx, r); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			m.counts[f.name]++
		}
		if time.Since(began) >= m.length {
			return nil
		}
	}
}

// missed are the watchers that do not come to see the last words.
func (m *meeting) missed(ctx context.Context, want map[string]map[string]uint64) (out []string) {
	patience, cancel := context.WithTimeout(ctx, m.pace.last) // of all of them
	defer cancel()
	for _, w := range m.all() {
		sees := func() bool { return w.sees(want[w.of]) }
		if err := m.until(patience, w.name+" sees the last words", sees); err != nil && !sees() {
			out = append(out, fmt.Sprintf("%s sees %v, and it is %v", w.name, w.sight(), want[w.of]))
		}
	}
	return out
}
