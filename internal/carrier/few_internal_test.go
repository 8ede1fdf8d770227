// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"net"
	"slices"
	"testing"
)

// ended remembers that it was closed; nothing else of it is used.
type ended struct {
	net.Conn
	closed bool
}

func (e *ended) Close() error {
	e.closed = true
	return nil
}

func TestOneOfFewMoreCostsTheOldestItsPlace(t *testing.T) {
	shed := 0
	l := Few(nil, 2, func() { shed++ }).(*few)
	conns := []*ended{{}, {}, {}, {}, {}}
	closed := func() (out []int) {
		for i, c := range conns {
			if c.closed {
				out = append(out, i)
			}
		}
		return out
	}
	all := []net.Conn{l.enter(conns[0]), l.enter(conns[1])}
	all[0].Close() // its place is free
	all = append(all, l.enter(conns[2]))
	if shed != 0 || !slices.Equal(closed(), []int{0}) {
		t.Fatalf("%d shed although there was room; closed %v", shed, closed())
	}
	all = append(all, l.enter(conns[3]))
	if shed != 1 || !slices.Equal(closed(), []int{0, 1}) {
		t.Errorf("%d shed, closed %v; want the oldest alone", shed, closed())
	}
	all[1].Close() // has lost its place already
	all = append(all, l.enter(conns[4]))
	if shed != 2 || !slices.Equal(closed(), []int{0, 1, 2}) {
		t.Errorf("%d shed, closed %v: a place was given back twice", shed, closed())
	}
	for _, c := range all {
		c.Close()
	}
	if l.order.Len() != 0 {
		t.Errorf("%d places are not given back", l.order.Len())
	}
}
