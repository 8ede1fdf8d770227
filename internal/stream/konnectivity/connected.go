// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "time"

// Connected is an agent's tunnel, for people.
type Connected struct {
	Agent, Holder string // the agent's id, and whose credential it has shown
	Connections   int
	Draining      bool
	Since         time.Time
}

// Connected lists the tunnels in the order of their arrival.
func (a *Agents) Connected() (out []Connected) {
	for _, t := range a.live() {
		out = append(out, Connected{Agent: t.who.agent, Holder: t.who.holder.Name, Connections: int(t.open.Load()),
			Draining: t.draining.Load(), Since: t.since})
	}
	return out
}

// Agent is the id of the agent that carries the connection, empty at the agent's own end.
func (f *flow) Agent() string { return f.link.agent }
