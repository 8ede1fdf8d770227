// SPDX-License-Identifier: Apache-2.0

package quota

import "time"

// Grant is what a dial, and then its stream, takes up: one place in the account of its
// caller, its cluster and its agent, as far as the dial has come.
type Grant struct {
	of [3]*Account
	n  int
}

// Take takes a place in an account. A dial that has to wait holds it even if it is refused,
// until Cancel.
func (g *Grant) Take(a *Account, patience time.Duration) (t reservation, err error) {
	if t, err = a.begin(patience); err == nil || t.wait > 0 {
		g.of[g.n] = a
		g.n++
	}
	return t, err
}

// Drop gives back the place that was taken last.
func (g *Grant) Drop() {
	g.n--
	g.of[g.n].end()
	g.of[g.n] = nil
}

// Cancel gives back everything: the dial became no stream.
func (g *Grant) Cancel() {
	for g.n > 0 {
		g.Drop()
	}
}

// Start turns the dial into a stream: it is no longer pending, and in and out charge its
// bytes to the same accounts. lost is closed when its session ends. Start gives the account
// of the caller, nil if there is none; Finish ends the stream.
func (g *Grant) Start(in, out *Throttle, lost <-chan struct{}) (caller *Account) {
	in.lost, out.lost = lost, lost
	for i, a := range g.of[:g.n] {
		a.pending.Add(-1)
		in.to[i], out.to[i] = a.in, a.out
		if a.scope == ScopeCaller {
			caller = a
		}
	}
	return caller
}

// Finish gives back the places of a stream.
func (g *Grant) Finish() {
	for _, a := range g.of[:g.n] {
		a.streams.Add(-1)
	}
}
