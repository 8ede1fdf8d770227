// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"slices"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// holding is what agents have with one credential.
type holding struct {
	ids     map[string]int // tunnels of each agent id
	tunnels int
	shared  atomic.Bool // agents with several ids have the credential
}

// count adds the tunnels of an id, or takes them away.
func (h *holding) count(id string, change int) {
	h.tunnels += change
	if h.ids[id] += change; h.ids[id] == 0 {
		delete(h.ids, id)
	}
	h.shared.Store(len(h.ids) > 1)
}

// attach adds the tunnel of an agent, whose id is nobody else's: an agent that drains gives it up.
func (a *Agents) attach(who agentIdentity, s messages) (*tunnel, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.ids[who.agent] {
		if t.who.holder != who.holder && !t.draining.Load() {
			return nil, fault.Newf(fault.CodeUnauthorized, "the agent id %q is taken", who.agent).
				Whyf("%s is connected by it, and this agent is %s", t.who.holder, who.holder).
				Hint("give each agent an --agent-id of its own; one that has moved is taken when its earlier tunnel has ended")
		}
	}
	h := a.holders[who.holder]
	if h == nil {
		h = &holding{ids: map[string]int{}}
	}
	if f := crowded(who, len(a.tunnels), h); f != nil {
		return nil, f
	}
	h.count(who.agent, +1)
	a.holders[who.holder] = h
	t := newTunnel(a, who, s)
	t.shared = &h.shared
	a.tunnels = append(a.tunnels, t)
	a.ids[who.agent] = append(a.ids[who.agent], t)
	return t, nil
}

// arrived has a tunnel dialled through.
func (a *Agents) arrived(t *tunnel) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !t.ready.Swap(true) {
		a.near.count(t.who.agent, t.who.near, +1, t.drainsLocked())
	}
}

// leaves has a tunnel dialled through only where there is no other, and says whether it has been so before.
func (a *Agents) leaves(t *tunnel) (before bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = t.draining.Swap(true)
	if !before && t.ready.Load() {
		a.near.count(t.who.agent, t.who.near, 0, +1)
	}
	return before
}

// gone has a tunnel dialled through no more.
func (a *Agents) gone(t *tunnel) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.goneLocked(t)
}

func (a *Agents) goneLocked(t *tunnel) {
	if t.ready.Swap(false) {
		a.near.count(t.who.agent, t.who.near, -1, -t.drainsLocked())
	}
}

// drainsLocked is 1 for a tunnel that drains.
func (t *tunnel) drainsLocked() int {
	if t.draining.Load() {
		return 1
	}
	return 0
}

// detach takes a tunnel away that attach has added.
func (a *Agents) detach(t *tunnel) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.goneLocked(t)
	itself := func(other *tunnel) bool { return other == t }
	a.tunnels = slices.DeleteFunc(a.tunnels, itself)
	if a.ids[t.who.agent] = slices.DeleteFunc(a.ids[t.who.agent], itself); len(a.ids[t.who.agent]) == 0 {
		delete(a.ids, t.who.agent)
	}
	h := a.holders[t.who.holder]
	if h.count(t.who.agent, -1); h.tunnels == 0 {
		delete(a.holders, t.who.holder)
	}
}

// crowded is why an agent gets no tunnel; nil if it does. There are so many in all, and h are those with its
// credential. One node has room for a few agents only, so that whoever has stolen the token of one takes few ids. Other
// credentials may be those of all agents: only what there is in all bounds them.
func crowded(who agentIdentity, all int, h *holding) *fault.Fault {
	const look = "stop what connects so often, or wait: a tunnel that is lost is noticed within a minute, " +
		"or as the server's --keepalive-time says"
	switch {
	case all >= mostTunnels:
		return fault.New(fault.CodeLimit, "the server takes no more agents").
			Whyf("there are %d tunnels of agents", all).Hint("%s; or connect agents to fewer servers", look)
	case who.holder.Node == "":
		return nil
	case h.ids[who.agent] == 0 && len(h.ids) >= nodeAgents:
		return fault.New(fault.CodeLimit, "the agent's node has too many agents").
			Whyf("%d agent ids are connected as %s", len(h.ids), who.holder).
			Hint("%s; if they are none of yours, a token of the node was stolen: delete its pod", look)
	case h.tunnels >= nodeTunnels:
		return fault.New(fault.CodeLimit, "the agent's node has too many tunnels").
			Whyf("%d are connected as %s", h.tunnels, who.holder).Hint("%s", look)
	}
	return nil
}
