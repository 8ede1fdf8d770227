// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// fleet swaps the server, and the two agents one after the other, from ours to the reference's and back, while people
// use kubectl, and wants no command to fail.
//
// What is under way when a server or an agent ends is cut: both are one process on the way, and kube-apiserver keeps
// connections to kubelets, which an agent still has when it has drained. So nobody is in the middle of a command at the
// moments of these deaths; they begin again right after it. Our server is not even started then. For the reference's it
// is waited: it answers that there is no agent until there is one.
func (k *konnectivity) fleet(t *testing.T) {
	f := &fleet{konnectivity: k, done: map[string]int{}}
	var people sync.WaitGroup
	over := make(chan struct{})
	for _, args := range [][]string{
		{"logs", "writer", "--tail=1"}, {"exec", "shell", "--", "echo", "hello"}, {"get", "--raw", "/api/v1/nodes/node1/proxy/healthz"},
	} {
		people.Go(func() { f.person(t, over, args) })
	}
	defer people.Wait()
	defer close(over)
	f.commands(t, "ours at both ends")
	f.swapServer(t, rig.References)
	f.commands(t, "our agents, the reference's server")
	f.swapAgents(t, rig.References)
	f.commands(t, "the reference's at both ends")
	f.swapServer(t, rig.Tombolos)
	f.commands(t, "the reference's agents, our server")
	f.swapAgents(t, rig.Tombolos)
	f.commands(t, "ours at both ends again")
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, of := range f.done {
		n += of
	}
	t.Attr("figure", fmt.Sprintf("%d commands while 2 servers and 4 agents were swapped, %d failed", n, len(f.failed)))
	if len(f.failed) > 0 {
		t.Errorf("%d of %d commands failed:\n%s", len(f.failed), n, strings.Join(f.failed, "\n"))
	}
}

type fleet struct {
	*konnectivity
	gate sync.RWMutex // held by who has a command under way, and exclusively at a death

	mu     sync.Mutex
	when   string
	done   map[string]int
	failed []string
}

// person runs a command again and again.
func (f *fleet) person(t *testing.T, over <-chan struct{}, args []string) {
	for {
		select {
		case <-over:
			return
		default:
		}
		f.gate.RLock()
		f.mu.Lock()
		when := f.when
		f.mu.Unlock()
		begin := time.Now()
		out, err := f.Kubectl(f.within(t, time.Minute), args...)
		f.gate.RUnlock()
		f.mu.Lock()
		f.done[args[0]]++
		if err != nil {
			f.failed = append(f.failed, fmt.Sprintf("%s: after %s: %v: %s", when, time.Since(begin), err, out))
		}
		f.mu.Unlock()
	}
}

// commands waits until each of the people has used what there is now.
func (f *fleet) commands(t *testing.T, with string) {
	t.Helper()
	f.mu.Lock()
	f.when = with
	want := map[string]int{}
	for _, kind := range []string{"logs", "exec", "get"} {
		want[kind] = f.done[kind] + 3 // the first may have begun before
	}
	f.mu.Unlock()
	runtest.Eventually(t, "commands with "+with, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for kind, n := range want {
			if f.done[kind] < n {
				return false
			}
		}
		return true
	})
}

// swapServer puts another server in the place of the one that is there.
func (f *fleet) swapServer(t *testing.T, to rig.Program) {
	t.Helper()
	f.death(func() {
		f.server.End()
		f.noticed(t)
		if to == rig.References {
			f.serve(t, to, kamajiServer(t))
			f.ready(t)
		}
	})
	if to == rig.Tombolos {
		f.serve(t, to, kamajiServer(t))
		f.ready(t)
	}
	f.agents(t, "2")
	f.says(t, to)
}

// death runs what ends a server or agents while nobody has a command under way.
func (f *fleet) death(run func()) {
	f.gate.Lock()
	defer f.gate.Unlock()
	run()
}

// noticed lets kube-apiserver see that connections have ended: it has when it answers something new.
func (f *fleet) noticed(t *testing.T) {
	t.Helper()
	if _, err := f.Get(f.within(t, time.Minute), "/readyz"); err != nil {
		t.Error(err)
	}
}

// swapAgents rolls the Deployment. The old agents are told to end, and drain; those of ours that have no connection any
// more end by themselves. What is left is killed when the new ones are there, as kubelet does.
func (f *fleet) swapAgents(t *testing.T, to rig.Program) {
	t.Helper()
	from, block := rig.Tombolos, "back"
	if to == rig.Tombolos {
		from, block = rig.References, "the image of a deployment"
	}
	f.does(t, block)
	runtest.Eventually(t, "the new agents are connected", func() bool {
		return f.tunnels() == strconv.Itoa(2+len(f.KonnectivityAgents(from)))
	})
	f.death(func() {
		f.KillKonnectivityAgents(from)
		f.agents(t, "2") // they are dead only now
		f.noticed(t)
	})
}
