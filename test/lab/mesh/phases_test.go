// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
)

// phases are what happens to two nodes of linked clusters, a and e, while packets flow and somebody listens.
type phases struct {
	a, e         *node
	name         string // e's, as a calls it
	engine, link string // of both, and the kind of link that the kernel has for it
	flows        []*lab.Flood
	renew        func()       // has a and e agree on new keys
	byKernel     bool         // nothing that flows needs the program; keys are the node's own, and cost packets (0021)
	gone         func() error // is nil once a's kernel has nothing of e any more
	shown        func()       // waits until a's status shows e's tunnel
	came         func()       // is called each time that packets have come
}

// come waits until packets of all flows have come that were sent from now on.
func (p *phases) come(r *linkedRig) {
	r.t.Helper()
	now := time.Now()
	for _, f := range p.flows {
		r.awaitAfter(f, now)
	}
	p.came()
}

// lost checks that none of the packets are lost that were sent after a moment.
func (p *phases) lost(r *linkedRig, while string, begin time.Time) {
	r.t.Helper()
	p.come(r)
	until := time.Now()
	p.come(r)
	r.noneLost(while, begin, until, p.flows...)
	for _, f := range p.flows {
		r.t.Attr("figure", "while "+while+", of "+f.String()+" "+f.Lost(begin).String())
	}
}

// pass has packets flow while keys are renewed, a peer goes and comes, a node starts without API servers after it was
// killed, and one is stopped with its tunnels kept, and then moved to the userspace engine and back.
func (r *linkedRig) pass(p phases) {
	defer func() {
		for _, f := range p.flows {
			f.End()
		}
	}()
	_ = r.step("new keys", func(*testing.T) {
		p.come(r)
		begin := time.Now()
		if p.renew(); p.byKernel {
			p.come(r)
		} else {
			p.lost(r, "keys are renewed", begin)
		}
	}) && r.step("a peer goes", func(t *testing.T) {
		for _, c := range r.linked {
			c.api.Delete(kubetest.ClusterNodes, p.name)
		}
		r.noPeers(p.a, p.name)
		r.eventually("a has nothing of e", nil, p.gone)
		r.setReady(p.e.host.Name(), "NotReady") // which has it be written again
		p.shown()
		r.setReady(p.e.host.Name(), "Ready")
		p.come(r)
	}) && r.step("without API servers", func(t *testing.T) {
		for _, c := range r.linked {
			c.api.Away(true)
		}
		begin := time.Now()
		p.a.kill()
		p.a.begin()
		p.a.awaitUp()
		if p.byKernel {
			p.lost(r, "a node is killed and starts", begin)
		} else { // ESP in UDP comes in by a socket of the program
			p.come(r)
		}
		for _, c := range r.linked {
			c.api.Away(false)
		}
	}) && r.step("stopped, and kept", func(t *testing.T) {
		p.e.stop()
		p.e.requireLink(p.link)
		p.e.begin()
		p.e.awaitUp()
		p.come(r)
	}) && r.step("to the userspace engine, and back", func(t *testing.T) {
		for _, engine := range []string{meshconf.Userspace, p.engine} {
			p.e.stop()
			p.e.edit(func(whole map[string]any) { section(whole, "mesh")["engine"] = engine })
			p.e.begin()
			p.e.awaitUp()
			p.come(r)
		}
		p.shown()
	})
}
