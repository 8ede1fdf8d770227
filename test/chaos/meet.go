// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/seal"
	"github.com/tombolo-io/tombolo/test/lab"
)

// meeting is a discovery service under everything that goes wrong, with members
// that write and watchers that read, in both protocols.
type meeting struct {
	*world   // of which there is no hub here
	service  *lab.Process
	chr      *chronicle
	gates    []*gate
	watchers []*watcher
	members  []*member
	jump     atomic.Int64 // of the clock of native members
	lease    time.Duration
	counts   map[string]int
}

const (
	meetingClusters = 2 // of each protocol
	meetingMembers  = 6 // of each; in so small a cluster a first answer is never old
	meetingWatchers = 2 // of each
)

// meet plays for a while and checks what was seen.
func (d *driver) meet(ctx context.Context, l *lab.Lab) (err error) {
	m, err := d.newMeeting(ctx, l)
	defer func() { err = errors.Join(err, m.close()) }()
	if err != nil {
		return err
	}
	if err := m.play(ctx); err != nil {
		return fmt.Errorf("%w\nthe discovery service's last words:\n%s", err, m.lastWords())
	}
	return nil
}

func (d *driver) newMeeting(ctx context.Context, l *lab.Lab) (m *meeting, err error) {
	m = &meeting{world: &world{driver: d, lab: l}, chr: &chronicle{deeds: map[string][]deed{}}, counts: map[string]int{}}
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
	r := rand.New(rand.NewPCG(d.seed, uint64(os.Getpid())+1))
	m.host = fmt.Sprintf("127.%d.%d.%d", 64+r.IntN(60), r.IntN(256), 1+r.IntN(250))
	m.config = filepath.Join(m.dir, "discovery.yaml")
	if err := os.WriteFile(m.config, fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: DiscoveryConfig
stateDir: %[1]s/state
runDir: %[1]s/run
listen: %[2]q
admin: {listen: "%[3]s:8447"}
tls: {none: true}
store: {memory: {snapshotInterval: 1s}}
rates: {perSecond: 100000, burst: 100000}
settle: %[4]v
drainTimeout: 500ms
`, m.dir, m.at(), m.host, min(m.lease, 3*time.Second)), 0o600); err != nil {
		return m, err
	}
	if err := m.start(ctx); err != nil {
		return m, err
	}
	for i := range meetingClusters {
		if err := m.gather(i, r); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m *meeting) at() string { return m.host + ":8446" }

func (m *meeting) start(ctx context.Context) (err error) {
	cmd := exec.Command(m.program, "discovery", "--config", m.config)
	if err := m.keepLog(cmd, "discovery", &m.log); err != nil {
		return err
	}
	if m.service, err = m.lab.Here().Start(cmd); err != nil {
		return err
	}
	return m.until(ctx, "the discovery service is ready", func() bool { return m.ready("http://" + m.host + ":8447/readyz") })
}

func (m *meeting) close() error {
	for _, w := range m.watchers {
		w.conn.Close()
	}
	for _, g := range m.gates {
		g.end()
	}
	for _, one := range m.members {
		one.speaker.close()
	}
	if m.service != nil {
		m.service.Kill()
	}
	return m.world.close()
}

// gather makes the members and watchers of a cluster of each protocol.
func (m *meeting) gather(number int, r *rand.Rand) error {
	secret, err := seal.NewSecret(crand.Reader)
	if err != nil {
		return err
	}
	keys, names := secret.Keys(), map[string]string{}
	older, native := fmt.Sprintf("older%d", number), fmt.Sprintf("native%d", number)
	for i := range meetingMembers {
		name := fmt.Sprintf("m%d", i)
		conn, err := dialService(m.at())
		if err != nil {
			return err
		}
		m.join(older+"/"+name, &olderSpeaker{conn: conn, cluster: older, member: name}, r)
		key, err := seal.NewMemberKey(crand.Reader)
		if err != nil {
			return err
		}
		if conn, err = dialService(m.at()); err != nil {
			return err
		}
		id := key.ID()
		names[string(id[:])] = name
		m.join(native+"/"+name, &nativeSpeaker{conn: conn, keys: keys, member: key, jump: &m.jump}, r)
	}
	for i := range meetingWatchers {
		if err := m.watch(fmt.Sprintf("%s/w%d", older, i), older, watchOlder, nil); err != nil {
			return err
		}
		if err := m.watch(fmt.Sprintf("%s/w%d", native, i), native, watchNative(keys), names); err != nil {
			return err
		}
	}
	return nil
}

func (m *meeting) join(who string, s speaker, r *rand.Rand) {
	m.members = append(m.members, &member{who: who, speaker: s, c: m.chr, ttl: m.lease, r: rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))})
}

func (m *meeting) watch(name, of string, once func(context.Context, *watcher) error, names map[string]string) error {
	g, err := newGate(m.host+":0", m.at())
	if err != nil {
		return err
	}
	m.gates = append(m.gates, g)
	conn, err := dialService(g.ln.Addr().String())
	if err != nil {
		return err
	}
	m.watchers = append(m.watchers, &watcher{name: name, of: of, conn: conn, c: m.chr, once: once, names: names})
	return nil
}

// mishap is something that goes wrong with a discovery service or on the way to it.
type mishap struct {
	name string
	do   func(ctx context.Context, m *meeting, r *rand.Rand) error
}

func mishaps() []mishap {
	return []mishap{
		{"the service is killed", func(ctx context.Context, m *meeting, _ *rand.Rand) error { return m.kill(ctx, nil) }},
		{"the service is killed, and its last snapshot is torn", func(ctx context.Context, m *meeting, _ *rand.Rand) error {
			return m.kill(ctx, m.tear)
		}},
		{"the service restarts in order", func(ctx context.Context, m *meeting, _ *rand.Rand) error {
			m.chr.outage(false)
			if err := m.service.Stop(30 * time.Second); err != nil {
				return fmt.Errorf("it did not end in order: %w", err)
			}
			return m.start(ctx)
		}},
		{"the service stands still", func(ctx context.Context, m *meeting, _ *rand.Rand) error {
			return standStill(ctx, m.service, m.pace.fault)
		}},
		{"watchers are cut off, and nobody says so", func(ctx context.Context, m *meeting, r *rand.Rand) error {
			for _, g := range m.gates {
				g.shut(r.IntN(2) == 0)
			}
			sleep(ctx, m.pace.fault)
			for _, g := range m.gates {
				g.shut(false)
			}
			return nil
		}},
		{"watchers lose their connections", func(_ context.Context, m *meeting, _ *rand.Rand) error {
			for _, g := range m.gates {
				g.cut()
			}
			return nil
		}},
		{"the clocks of members jump by an hour, and back", func(ctx context.Context, m *meeting, _ *rand.Rand) error {
			m.jump.Store(int64(time.Hour))
			sleep(ctx, m.pace.fault/2)
			m.jump.Store(-int64(time.Hour))
			sleep(ctx, m.pace.fault/2)
			m.jump.Store(0)
			return nil
		}},
	}
}

// kill ends the service without a word, does what happens to its files meanwhile,
// and starts it again with its state.
func (m *meeting) kill(ctx context.Context, meanwhile func() error) error {
	m.chr.outage(true)
	if err := signal(m.service, syscall.SIGKILL); err != nil {
		return err
	}
	m.service.Wait()
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return err
		}
	}
	return m.start(ctx)
}

// tear leaves half of the last snapshot, as a disk does that lost a page.
func (m *meeting) tear() error {
	path := filepath.Join(m.dir, "state", "members")
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was killed while it was being replaced, or before the first
	}
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()/2)
}

// play lets members and watchers live under mishaps, each in turn, until the time
// is over. Then all say their last word, and every watcher must come to see it.
func (m *meeting) play(ctx context.Context) error {
	watching, enough := context.WithCancel(ctx)
	defer enough()
	var watchers, members sync.WaitGroup
	defer watchers.Wait()
	defer enough() // before the wait
	for _, w := range m.watchers {
		watchers.Go(func() { w.live(watching) })
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

func (m *meeting) mishaps(ctx context.Context) error {
	r := rand.New(rand.NewPCG(m.seed, 2))
	list := mishaps()
	for began := time.Now(); ; {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, f := range list {
			sleep(ctx, m.pace.calm+m.pace.fault/2)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.say("%s", f.name)
			if err := f.do(ctx, m, r); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			m.counts[f.name]++
		}
		if time.Since(began) >= m.meeting {
			return nil
		}
	}
}

// missed are the watchers that do not come to see the last words.
func (m *meeting) missed(ctx context.Context, want map[string]map[string]uint64) (out []string) {
	for _, w := range m.watchers {
		if err := m.until(ctx, w.name+" sees the last words", func() bool { return w.sees(want[w.of]) }); err != nil {
			out = append(out, fmt.Sprintf("%s sees %v, and it is %v", w.name, w.sight(), want[w.of]))
		}
	}
	return out
}

// judge prints what came out.
func (m *meeting) judge(missed []string) {
	c := m.chr
	c.mu.Lock()
	defer c.mu.Unlock()
	f := judgeMeeting(c.deeds, c.sights, c.outages)
	words, acked := 0, 0
	for _, all := range c.deeds {
		for _, d := range all {
			words++
			if d.acked {
				acked++
			}
		}
	}
	count := func(name string, list []string, note string) {
		if len(list) > 0 {
			note = "the first: " + strings.Join(list[:min(3, len(list))], "; ")
		}
		m.line(line{name: name, value: float64(len(list)), target: 0, note: note})
	}
	m.line(line{name: "messages that watchers of a discovery service read", value: float64(len(c.sights)), target: 100, atLeast: true,
		note: fmt.Sprintf("%d words of members, %d taken; %d streams of %d watchers; %d outages", words, acked, c.streams, len(m.watchers), len(c.outages))})
	count("watchers that missed a final state", missed, "")
	count("members that vanished while their lease lived", f.vanished, fmt.Sprintf("%d absences looked at", f.absences))
	count("members that stayed when a later lease had ended", f.stayed, fmt.Sprintf("%d pairs looked at", f.ends))
	count("words that were skipped for later ones", f.skipped, fmt.Sprintf("%d looked at", f.orders))
	count("versions that went back on a stream", f.back, fmt.Sprintf("%d looked at", f.versions))
	count("words that nobody said, and entries that do not open", append(f.invented, c.wrong...), "")
}
