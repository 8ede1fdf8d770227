// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/test/kube/tools"
	"github.com/tombolo-io/tombolo/test/lab"
)

// fleet is a meeting at several discovery services that share an etcd of several
// members. Half of the callers come through a balancer that asks the services'
// probes, half through one that asks nobody; each service has a watcher of its own.
type fleet struct {
	*meeting
	replicas []*replica
	etcd     []*keeper
}

const fleetReplicas, fleetEtcd = 3, 3

// A fleet is one service to its callers, but for this: what one has taken, others
// learn from etcd, and etcd ends leases by the half second, or a whole lease later
// when it has a new leader.
const fleetLag, fleetSlack = 3 * time.Second, 3 * time.Second

// replica is one of the services.
type replica struct {
	direct
	admin, config string
	running       *lab.Process
	ways          []*gate // to each member of etcd
	up            atomic.Bool
}

// keeper is a member of etcd.
type keeper struct {
	name, url, peer string
	args            []string
	running         *lab.Process
}

// meetFleet plays for a while with several services and checks what was seen.
func (d *driver) meetFleet(ctx context.Context, l *lab.Lab) (err error) {
	f, err := d.newFleet(ctx, l)
	defer func() { err = errors.Join(err, f.close()) }()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, f.lastWords())
	}
	return f.plays(ctx)
}

func (f *fleet) plays(ctx context.Context) error {
	if err := f.play(ctx); err != nil {
		return fmt.Errorf("%w\nthe last words of the discovery services and of etcd:\n%s", err, f.lastWords())
	}
	return nil
}

func (d *driver) newFleet(ctx context.Context, l *lab.Lab) (f *fleet, err error) {
	r := d.player(2)
	m, err := d.newMeeting(l, "three discovery services with etcd")
	f = &fleet{meeting: m}
	if err != nil {
		return f, err
	}
	f.length, f.list = d.fleet, append(f.common(), f.own()...)
	f.distance = distance{lag: fleetLag, slack: f.lease + fleetSlack}
	f.guards = append(f.guards, f.probe)
	if err := f.startEtcd(ctx); err != nil {
		return f, err
	}
	for i := range fleetReplicas {
		if err := f.addReplica(ctx, i); err != nil {
			return f, err
		}
	}
	checked, err := newGate(f.host+":0", func() string { return f.pick(true) })
	if err != nil {
		return f, err
	}
	f.gates = append(f.gates, checked)
	blind, err := newGate(f.host+":0", func() string { return f.pick(false) })
	if err != nil {
		return f, err
	}
	f.gates = append(f.gates, blind)
	doors := []string{checked.address(), blind.address()}
	f.door = func(i int) string { return doors[i%2] }
	err = f.gather(r)
	f.gates = f.gates[2:] // mishaps are for those of watchers
	f.ends = append(f.ends, checked.end, blind.end)
	return f, err
}

// pick is the service for a new connection; one that is up, if that is asked for
// and there is one.
func (f *fleet) pick(up bool) string {
	order := rand.Perm(len(f.replicas)) // which of them is nobody's business
	for _, i := range order {
		if f.replicas[i].up.Load() || !up {
			return f.replicas[i].at
		}
	}
	return f.replicas[order[0]].at
}

// probe asks who is up, as a load balancer does.
func (f *fleet) probe(ctx context.Context) {
	for ctx.Err() == nil {
		for _, r := range f.replicas {
			r.up.Store(f.ready("http://" + r.admin + "/readyz"))
		}
		run.Wait(ctx, 100*time.Millisecond)
	}
}

// startEtcd starts all members of etcd.
func (f *fleet) startEtcd(ctx context.Context) error {
	repo, err := tools.Repo()
	if err != nil {
		return err
	}
	program, err := tools.EnsureEtcd(ctx, repo, func(text string) { f.say("%s", text) })
	if err != nil {
		return err
	}
	var peers []string
	for i := range fleetEtcd {
		k := &keeper{name: fmt.Sprintf("e%d", i), url: fmt.Sprintf("http://%s:%d", f.host, 8600+10*i), peer: fmt.Sprintf("http://%s:%d", f.host, 8601+10*i)}
		peers = append(peers, k.name+"="+k.peer)
		f.etcd = append(f.etcd, k)
	}
	for _, k := range f.etcd {
		// What a process wrote survives it without fsync; only a machine's end costs it.
		k.args = []string{program, "--data-dir", filepath.Join(f.dir, k.name), "--name", k.name, "--log-level", "error",
			"--listen-client-urls", k.url, "--advertise-client-urls", k.url, "--listen-peer-urls", k.peer,
			"--initial-advertise-peer-urls", k.peer, "--initial-cluster", strings.Join(peers, ","), "--unsafe-no-fsync"}
		if err := f.startKeeper(k); err != nil {
			return err
		}
	}
	return f.etcdAnswers(ctx)
}

func (f *fleet) startKeeper(k *keeper) (err error) {
	cmd := exec.Command(k.args[0], k.args[1:]...)
	if err := f.keepLog(cmd, "etcd", &f.log); err != nil {
		return err
	}
	k.running, err = f.lab.Here().Start(cmd)
	return err
}

func (f *fleet) etcdAnswers(ctx context.Context) error {
	return f.until(ctx, "etcd answers", func() bool {
		for _, k := range f.etcd {
			if !f.ready(k.url + "/health") {
				return false
			}
		}
		return true
	})
}

func (f *fleet) addReplica(ctx context.Context, number int) error {
	r := &replica{direct: direct{number: number, at: fmt.Sprintf("%s:%d", f.host, 8500+10*number)}, admin: fmt.Sprintf("%s:%d", f.host, 8501+10*number)}
	f.replicas, f.direct = append(f.replicas, r), append(f.direct, &r.direct)
	var urls []string
	for _, k := range f.etcd {
		g, err := newGate(f.host+":0", func() string { return strings.TrimPrefix(k.url, "http://") })
		if err != nil {
			return err
		}
		r.ways = append(r.ways, g)
		f.ends = append(f.ends, g.end)
		urls = append(urls, fmt.Sprintf("%q", "http://"+g.address()))
	}
	prefix := "/chaos"
	if f.apart && number == 0 {
		prefix = "/apart"
	}
	dir := filepath.Join(f.dir, fmt.Sprintf("r%d", number))
	r.config = dir + ".yaml"
	if err := os.WriteFile(r.config, fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: DiscoveryConfig
stateDir: %[1]s/state
runDir: %[1]s/run
listen: %[2]q
admin: {listen: %[3]q}
tls: {self: true, hosts: [%[4]q]}
store: {etcd: {endpoints: [%[5]s], prefix: %[6]s}}
rates: {perSecond: 100000, burst: 100000}
settle: 200ms
drainTimeout: 500ms
`, dir, r.at, r.admin, f.host, strings.Join(urls, ", "), prefix), 0o600); err != nil {
		return err
	}
	if err := f.shareCA(ctx, filepath.Join(dir, "state")); err != nil {
		return err
	}
	return f.startReplica(ctx, r)
}

func (f *fleet) startReplica(ctx context.Context, r *replica) (err error) {
	cmd := exec.Command(f.program, "discovery", "--config", r.config)
	if err := f.keepLog(cmd, fmt.Sprintf("discovery%d", r.number), &f.log); err != nil {
		return err
	}
	if r.running, err = f.lab.Here().Start(cmd); err != nil {
		return err
	}
	return f.well(ctx, r)
}

// well waits until services serve, and have no doubts.
func (f *fleet) well(ctx context.Context, replicas ...*replica) error {
	for _, r := range replicas {
		if err := f.serves(ctx, r.running, fmt.Sprintf("service %d, without doubts", r.number), func() bool {
			text, err := readPage("http://" + r.admin + "/readyz")
			return err == nil && text == "ok\n"
		}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) close() error {
	for _, r := range f.replicas {
		kill(r.running)
	}
	for _, k := range f.etcd {
		kill(k.running)
	}
	return f.meeting.close()
}

// kill ends a process, if there is one, as kill -9 does.
func kill(p *lab.Process) {
	if p != nil {
		p.Kill()
		p.Wait()
	}
}

// own are the mishaps of services that share a store.
func (f *fleet) own() []mishap {
	one := func(do func(ctx context.Context, r *replica) error) func(context.Context, *rand.Rand) error {
		return func(ctx context.Context, chance *rand.Rand) error {
			return do(ctx, f.replicas[chance.IntN(len(f.replicas))])
		}
	}
	return []mishap{
		{name: "a service is killed", do: one(func(ctx context.Context, r *replica) error {
			return f.without(r, func() error {
				kill(r.running)
				run.Wait(ctx, f.pace.fault/2)
				return f.startReplica(ctx, r)
			})
		})},
		{name: "a service is killed again and again", do: one(func(ctx context.Context, r *replica) error {
			return f.without(r, func() error {
				for range 3 {
					kill(r.running)
					if err := f.startReplica(ctx, r); err != nil {
						return err
					}
				}
				return nil
			})
		})},
		{name: "all services restart in order, one after the other", do: func(ctx context.Context, _ *rand.Rand) error {
			for _, r := range f.replicas {
				if err := f.without(r, func() error {
					if err := r.running.Stop(30 * time.Second); err != nil {
						return fmt.Errorf("it did not end in order: %w", err)
					}
					return f.startReplica(ctx, r)
				}); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "a service stands still", do: one(func(ctx context.Context, r *replica) error {
			return f.unsure(ctx, func() error { return standStill(ctx, r.running, f.pace.fault) })
		})},
		{name: "a service is cut off from etcd, and is told so", do: one(func(ctx context.Context, r *replica) error {
			return f.unsure(ctx, func() error { return f.cutOff(ctx, r, (*gate).bar, true) })
		})},
		{name: "a service is cut off from etcd, and nobody says so", do: one(func(ctx context.Context, r *replica) error {
			return f.unsure(ctx, func() error { return f.cutOff(ctx, r, (*gate).shut, false) })
		})},
		{name: "a member of etcd is killed", do: func(ctx context.Context, chance *rand.Rand) error {
			return f.unsure(ctx, func() error { return f.etcdDies(ctx, f.etcd[chance.IntN(len(f.etcd))]) })
		}},
		{name: "all of etcd is killed at once", do: func(ctx context.Context, _ *rand.Rand) error {
			return f.unsure(ctx, func() error { return f.etcdDies(ctx, f.etcd...) })
		}},
		{name: "all of etcd stands still", do: func(ctx context.Context, _ *rand.Rand) error {
			return f.unsure(ctx, func() error {
				var stopped sync.WaitGroup
				errs := make([]error, len(f.etcd))
				for i, k := range f.etcd {
					stopped.Go(func() { errs[i] = standStill(ctx, k.running, f.pace.fault) })
				}
				stopped.Wait()
				return errors.Join(append(errs, f.etcdAnswers(ctx))...)
			})
		}},
	}
}

// without notes that a service is not there meanwhile.
func (f *fleet) without(r *replica, do func() error) error {
	from := time.Now()
	err := do()
	f.mu.Lock()
	defer f.mu.Unlock()
	r.gone = append(r.gone, period{from, time.Now().Add(time.Second)}) // a stream may begin while it ends
	return err
}

// unsure notes that services may not hear of each other meanwhile, and waits until
// all do again. Nobody may be lost for it.
func (f *fleet) unsure(ctx context.Context, do func() error) error {
	from := time.Now()
	f.chr.outage(false, time.Time{})
	err := do()
	if err == nil {
		err = f.well(ctx, f.replicas...)
	}
	f.chr.outage(false, time.Time{})
	f.distance.blind = append(f.distance.blind, period{from, time.Now()})
	return err
}

// cutOff closes a service's way to etcd; told: it must have noticed.
func (f *fleet) cutOff(ctx context.Context, r *replica, close func(g *gate, closed bool), told bool) error {
	for _, g := range r.ways {
		close(g, true)
	}
	var err error
	if told {
		err = f.until(ctx, "it is noticed", func() bool {
			text, err := readPage("http://" + r.admin + "/readyz")
			return err == nil && strings.Contains(text, "degraded: ")
		})
	}
	run.Wait(ctx, f.pace.fault)
	for _, g := range r.ways {
		close(g, false)
	}
	return err
}

// etcdDies kills members of etcd, and starts them again with what they knew.
func (f *fleet) etcdDies(ctx context.Context, which ...*keeper) error {
	for _, k := range which {
		if err := signal(k.running, syscall.SIGKILL); err != nil {
			return err
		}
		k.running.Wait()
	}
	run.Wait(ctx, f.pace.fault)
	for _, k := range which {
		if err := f.startKeeper(k); err != nil {
			return err
		}
	}
	return f.etcdAnswers(ctx)
}
