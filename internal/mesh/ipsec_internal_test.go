// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/ipsectunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// TestKeysThatAreNotAgreed: why, and whether packets pass meanwhile, stands in WHY; the state is that of the path.
func TestKeysThatAreNotAgreed(t *testing.T) {
	broken := errors.New("no answer")
	until := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, c := range []struct {
		had  string
		s    ipsectunnel.State
		want string
	}{
		{"", ipsectunnel.State{}, ""},
		{"slow", ipsectunnel.State{}, "slow"},
		{"slow", ipsectunnel.State{Fault: broken}, "no keys are agreed, and packets are lost: no answer"},
		{"", ipsectunnel.State{Fault: broken, Until: until},
			"no new keys are agreed, and the present ones end at 2030-01-02T03:04:05Z: no answer"},
		{"slow", ipsectunnel.State{Fault: broken, Until: until},
			"slow; no new keys are agreed, and the present ones end at 2030-01-02T03:04:05Z: no answer"},
	} {
		p := Peer{State: string(path.Direct), Why: c.had}
		p.keys(c.s)
		if p.Why != c.want || p.State != string(path.Direct) {
			t.Errorf("%+v: %q of a peer that is %s, want %q", c.s, p.Why, p.State, c.want)
		}
	}
}
