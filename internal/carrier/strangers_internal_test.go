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

func TestOneStrangerMoreCostsTheOldestItsPlace(t *testing.T) {
	shed := 0
	s := NewStrangers(2, func() { shed++ })
	conns := []*ended{{}, {}, {}, {}}
	closed := func() (out []int) {
		for i, c := range conns {
			if c.closed {
				out = append(out, i)
			}
		}
		return out
	}
	first := s.Add(conns[0])
	known := []func(){first, s.Add(conns[1])}
	first() // its place is free, and it is not to be shed
	known = append(known, s.Add(conns[2]))
	if shed != 0 || closed() != nil {
		t.Fatalf("%d shed although there was room", shed)
	}
	known = append(known, s.Add(conns[3]))
	if shed != 1 || !slices.Equal(closed(), []int{1}) {
		t.Errorf("%d shed, closed %v; want the oldest alone", shed, closed())
	}
	for _, k := range known {
		k()
		k() // twice is harmless
	}
	if s.order.Len() != 0 {
		t.Errorf("%d places are not given back", s.order.Len())
	}
}
