// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Of two ends that begin at one instant, again and again, one is alone at its second try.
func TestOneEndYields(t *testing.T) {
	small, great := member.Key{1}, member.Key{2}
	initiation := make([]byte, sizeInitiation)
	initiation[0] = typeInitiation
	var sent [2][]int
	for i, end := range []struct{ own, peer member.Key }{{small, great}, {great, small}} {
		e := newEndpoint(end.peer, nil)
		for try := 1; try <= 4; try++ {
			if !e.yields(end.own, [][]byte{initiation}) {
				sent[i] = append(sent[i], try)
			}
		}
		if e.yields(end.own, [][]byte{make([]byte, sizeTransport)}) {
			t.Error("a packet that is no initiation is left out")
		}
	}
	if len(sent[0]) != 2 || sent[0][0] != 1 || sent[0][1] != 3 || len(sent[1]) != 4 {
		t.Errorf("the smaller key sends %v, the greater %v", sent[0], sent[1])
	}
}
