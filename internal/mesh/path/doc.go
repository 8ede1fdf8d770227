// SPDX-License-Identifier: Apache-2.0

// Package path decides on which path packets reach a peer of the mesh: which of
// its candidates are pinged and when, which of those that answer is used, when
// a path is dead, and when a relay is used. It reads no clock, sends nothing
// and knows no keys; docs/reference/mesh.md ("Paths") is its specification.
//
//	p := path.New(rand)
//	p.Learn(now, path.Facts{Candidates: ..., Relays: ..., Probes: true})
//	for {
//		sends, due := p.Next(now) // what to send now, and when to ask again
//		p.Path()                   // the path in use
//	}
//
// Every event (Pong, Heard, Called, Traffic, Absent, Moved) may change what Next
// gives; the owner asks again after each.
//
//	           a candidate answers                  better for long enough
//	seeking ───────────────────────► direct ──────────────────────────────► direct'
//	   ▲  └── through the relay         │ three pings unanswered
//	   └────────────────────────────────┘ the next one that answers, else the relay
package path
