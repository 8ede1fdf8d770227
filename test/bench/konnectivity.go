// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/test/kube/tools"
	"github.com/tombolo-io/tombolo/test/roles"
)

// The pairs of a konnectivity server and its agent, each a program of its own with the same arguments.
const (
	egressReference = "reference" // kubernetes-sigs/apiserver-network-proxy's
	egressDropIn    = "drop-in"   // tombolo konnectivity-server and konnectivity-agent
)

func egresses() []string { return []string{egressReference, egressDropIn} }

// The modes of a server, and the kinds of the load's ends with which it is reached.
const (
	modeGRPC    = "grpc"
	modeConnect = "http-connect"
)

// throughKonnectivity is everything that is measured, for each mode. The first of two names is for gRPC.
func throughKonnectivity() (out []measurement) {
	for _, mode := range []string{modeGRPC, modeConnect} {
		name := func(grpc, connect string) string {
			if mode == modeGRPC {
				return grpc
			}
			return connect
		}
		out = append(out,
			onKonnectivity(egressBulk("one stream", 1), name("konn1", "konnc1"), mode),
			onKonnectivity(egressBulk("16 streams", 16), name("konn16", "konnc16"), mode),
			onKonnectivity(idlePing(), name("konnping", "konncping"), mode),
			onKonnectivity(opens(), name("konnopens", "konncopens"), mode),
			onKonnectivity(egressIdle(), name("konnmem", "konncmem"), mode))
	}
	return out
}

// onKonnectivity turns a measurement into one of konnectivity.
func onKonnectivity(m measurement, name, mode string) measurement {
	m.name, m.about = name, "konnectivity, "+mode+" over a unix socket: "+m.about
	m.transports, m.family, m.against = egresses(), familyEgress, egressReference
	m.unless, m.wedges = noEgress, true // a tunnel of the reference can stand still under load
	m.crew = func(ctx context.Context, b *bench, which string) (*crew, error) { return b.egress(ctx, which, mode) }
	return m
}

// egressBulk carries bytes. The door's CPU is that of server and agent together.
func egressBulk(about string, n int) measurement {
	m := bulk("", about, n)
	m.sample = sampleDoorBulk(n)
	return m
}

// egressIdle measures what idle connections hold in the server and the agent together.
func egressIdle() measurement {
	const n = 1000
	return measurement{
		about: "memory of server and agent for 1,000 idle connections, for each", variants: []string{fmt.Sprint(n)},
		main: idleBytes, rounds: 3, fresh: true,
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			look := func() (used, resident float64, err error) {
				if err = pause(ctx, idleFor); err == nil {
					used, resident, err = c.outsideMemory(ctx, s.profile)
				}
				return used, resident, err
			}
			used, resident, err := look()
			if err != nil {
				return nil, err
			}
			if err := c.load.Call(ctx, opHold, 0, n, nil); err != nil {
				return nil, err
			}
			usedNow, residentNow, err := look()
			return values{idleBytes: (usedNow - used) / n, idleResident: (residentNow - resident) / n}, err
		},
	}
}

// noEgress says why konnectivity cannot be measured here, or nil.
func noEgress(b *bench) error {
	if _, err := os.Stat(b.tombolo); err != nil {
		return fmt.Errorf("%w (make build makes it)", err)
	}
	_, err := b.egressProgram(egressReference)
	return err
}

// egressProgram is what runs a server or an agent, and its arguments before the flags.
func (b *bench) egressProgram(which string) (command func(what string) []string, err error) {
	if which == egressDropIn {
		path, err := filepath.Abs(b.tombolo)
		return func(what string) []string { return []string{path, "konnectivity-" + what} }, err
	}
	repo, err := tools.Repo()
	if err != nil {
		return nil, err
	}
	path, err := tools.EnsureReference(context.Background(), repo, func(line string) { b.say("%s", line) })
	return func(what string) []string { return []string{path, what} }, err
}

// egress is a crew with a konnectivity server and an agent between load and backend.
func (b *bench) egress(ctx context.Context, which, mode string) (c *crew, err error) {
	here := b.lab.Here()
	c = &crew{name: which}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.serve, err = c.spawn(here, roleServe, "backend"); err != nil {
		return c, err
	}
	var backend started
	if err = c.serve.Call(ctx, opStart, 0, transport{Kind: kindTCP, ListenAt: "127.0.0.1"}, &backend); err != nil {
		return c, err
	}
	socket, err := b.startEgress(ctx, c, which, mode)
	if err != nil {
		return c, err
	}
	if c.load, err = c.spawn(here, roleLoad, "client"); err != nil {
		return c, err
	}
	entry := transport{Kind: kindConnect, Address: socket, Target: backend.Address}
	if mode == modeGRPC {
		entry.Kind = kindGRPC
	}
	if err = c.load.Call(ctx, opStart, 0, entry, nil); err != nil {
		return c, err
	}
	if err := c.load.Call(ctx, opBulk, 0, bulkArgs{Down: 1}, nil); err != nil { // more may wedge the reference
		return c, err
	}
	if err := pause(ctx, b.settle()); err != nil {
		return c, err
	}
	return c, c.halt(ctx)
}

// startEgress starts server and agent, and returns the server's socket once it has its agent.
func (b *bench) startEgress(ctx context.Context, c *crew, which, mode string) (socket string, err error) {
	command, err := b.egressProgram(which)
	if err != nil {
		return "", err
	}
	dir, err := b.chainDir()
	if err != nil {
		return "", err
	}
	if err := b.creds.write(dir); err != nil {
		return "", err
	}
	var ports [5]int // agents, health and admin of the server, health and admin of the agent
	for i := range ports {
		if ports[i], err = registeredPort(); err != nil {
			return "", err
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	socket = at("s")
	server := append(command("server"), "--v=0", "--mode="+mode, "--uds-name="+socket, "--server-port=0",
		"--agent-bind-address=127.0.0.1", fmt.Sprintf("--agent-port=%d", ports[0]), "--health-bind-address=127.0.0.1",
		fmt.Sprintf("--health-port=%d", ports[1]), fmt.Sprintf("--admin-port=%d", ports[2]), "--enable-profiling",
		"--cluster-cert="+at(certFile), "--cluster-key="+at(keyFile), "--cluster-ca-cert="+at(caFile))
	agent := append(command("agent"), "--v=0", "--proxy-server-host=127.0.0.1", fmt.Sprintf("--proxy-server-port=%d", ports[0]),
		"--health-server-host=127.0.0.1", fmt.Sprintf("--health-server-port=%d", ports[3]),
		fmt.Sprintf("--admin-server-port=%d", ports[4]), "--enable-profiling", "--sync-interval=100ms",
		"--ca-cert="+at(caFile), "--agent-cert="+at(certFile), "--agent-key="+at(keyFile))
	for what, args := range map[string][]string{"server": server, "agent": agent} {
		if err := b.runOutside(c, at(what+".log"), exec.Command(args[0], args[1:]...)); err != nil {
			return "", err
		}
	}
	c.seen = []outsider{{"server", ports[2], ports[1]}, {"agent", ports[4], ports[3]}}
	if err := awaitOK(ctx, ports[1], "/readyz"); err != nil {
		said, _ := os.ReadFile(at("server.log"))
		more, _ := os.ReadFile(at("agent.log"))
		return "", fmt.Errorf("the %s has no agent: %w\n%s\n%s", which, err, said, more)
	}
	return socket, nil
}

// outsider is the ports of a program that is no role of ours.
type outsider struct {
	name           string
	admin, metrics int
}

// profileOutside has the programs with ports profile themselves for a second; the result waits for that.
func (c *crew) profileOutside(ctx context.Context, path string) (wait func() error) {
	if path == "" || len(c.seen) == 0 {
		return func() error { return nil }
	}
	errs := make([]error, len(c.seen))
	var wg sync.WaitGroup
	for i, p := range c.seen {
		wg.Go(func() {
			text, err := fetch(ctx, p.admin, "/debug/pprof/profile?seconds=1")
			errs[i] = errors.Join(err, os.WriteFile(path+"-"+p.name+".cpu.pprof", []byte(text), 0o600))
		})
	}
	return func() error { wg.Wait(); return errors.Join(errs...) }
}

// outsideMemory collects garbage in each program, and adds up the spans of heaps and stacks in use, and what lies in
// the machine's memory.
func (c *crew) outsideMemory(ctx context.Context, profile string) (used, resident float64, err error) {
	for _, p := range c.seen {
		var heap string
		for range 3 { // a sync.Pool lets go after two collections
			if heap, err = fetch(ctx, p.admin, "/debug/pprof/heap?gc=1"); err != nil {
				return 0, 0, err
			}
		}
		if profile != "" {
			if err := os.WriteFile(profile+"-"+p.name+".heap.pprof", []byte(heap), 0o600); err != nil {
				return 0, 0, err
			}
		}
		text, err := fetch(ctx, p.metrics, "/metrics")
		if err != nil {
			return 0, 0, err
		}
		for _, name := range []string{"go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes"} {
			v, err := sampleOf(text, name)
			if err != nil {
				return 0, 0, err
			}
			used += v
		}
	}
	for _, p := range c.outside {
		n, err := roles.Resident(p.Pid())
		if err != nil {
			return 0, 0, err
		}
		resident += float64(n)
	}
	return used, resident, nil
}

// sampleOf reads a metric without labels from the text format.
func sampleOf(text, name string) (v float64, err error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, err = fmt.Sscan(rest, &v)
			return v, err
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// fetch reads a page of a program on this machine.
func fetch(ctx context.Context, port int, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, roles.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, res.Status)
	}
	return string(text), err
}

// awaitOK waits until a page is there.
func awaitOK(ctx context.Context, port int, path string) error {
	ctx, cancel := context.WithTimeout(ctx, roles.Patience)
	defer cancel()
	for {
		_, err := fetch(ctx, port, path)
		if err == nil {
			return nil
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

// registeredPort is a free port that the reference takes: it refuses ephemeral ones.
func registeredPort() (int, error) {
	const least, most = 10_000, 32_000 // below those that the kernel gives to connections
	for range 100 {
		port := least + rand.IntN(most-least)
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, ln.Close()
		}
	}
	return 0, errors.New("no port is free")
}
