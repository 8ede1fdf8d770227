// SPDX-License-Identifier: Apache-2.0

package pools_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/pools"
)

func TestWanted(t *testing.T) {
	for name, c := range map[string]struct{ ranges, mapped, accepted, want string }{
		"as it is":                 {"10.1.0.0/16", "", "10.1.0.0/16", "10.1.0.0/16"},
		"not accepted":             {"10.1.0.0/16 10.9.0.0/16", "", "10.1.0.0/16", "10.1.0.0/16"},
		"within what is accepted":  {"10.1.0.0/16", "", "10.0.0.0/8", "10.1.0.0/16"},
		"mapped as a whole":        {"10.1.0.0/16", "10.1.0.0/16=240.1.0.0/16", "10.1.0.0/16 240.1.0.0/16", "240.1.0.0/16"},
		"a mapping that is wider":  {"10.1.0.0/16", "10.0.0.0/8=240.0.0.0/8", "10.1.0.0/16 240.0.0.0/8", "240.1.0.0/16"},
		"of IPv6":                  {"fd00:1::/48", "fd00::/16=fd99::/16", "fd99::/16", "fd99:1::/48"},
		"mappings that are wider":  {"10.1.0.0/16", "10.0.0.0/8=240.0.0.0/8 10.1.0.0/16=241.1.0.0/16", "240.0.0.0/4", "241.1.0.0/16"},
		"one that is narrower":     {"10.1.0.0/16", "10.1.2.0/24=240.1.2.0/24", "10.1.0.0/16 240.1.2.0/24", "10.1.0.0/16 240.1.2.0/24"},
		"narrower, not accepted":   {"10.1.0.0/16", "10.1.2.0/24=240.1.2.0/24", "10.1.0.0/16", "10.1.0.0/16"},
		"a mapping of another one": {"10.1.0.0/16", "10.2.0.0/16=240.2.0.0/16", "10.1.0.0/16 240.2.0.0/16", "10.1.0.0/16"},
		"one within the other":     {"10.1.2.0/24 10.1.0.0/16 10.1.0.0/16", "", "10.1.0.0/16", "10.1.0.0/16"},
		"nothing":                  {"", "", "", ""},
		"texts that are no ranges": {"x 10.1.0.1/16", "y=z", "10.0.0.0/8 w", ""},
	} {
		of := pools.Cluster{Ranges: strings.Fields(c.ranges), Accepted: strings.Fields(c.accepted), Mapped: map[string]string{}}
		for _, text := range strings.Fields(c.mapped) {
			there, here, _ := strings.Cut(text, "=")
			of.Mapped[there] = here
		}
		if got := fmt.Sprint(pools.Wanted([]pools.Cluster{of})); got != "["+c.want+"]" {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestDecide(t *testing.T) {
	const ours = "tombolo-10-1-0-0-16"
	pool := func(name, cidr string, words ...string) pools.Pool {
		out := pools.Pool{Name: name, CIDR: cidr}
		for _, w := range words {
			switch w {
			case "disabled":
				out.Disabled = true
			default:
				out.ManagedBy = w
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		wanted string
		have   []pools.Pool
		want   string
	}{
		"nothing is there": {"10.1.0.0/16 fd00::/48", []pools.Pool{pool("default", "10.2.0.0/16")},
			"remove [] make [10.1.0.0/16 fd00::/48] taken []"},
		"it is there":      {"10.1.0.0/16", []pools.Pool{pool(ours, "10.1.0.0/16", "tombolo", "disabled")}, "remove [] make [] taken []"},
		"somebody used it": {"10.1.0.0/16", []pools.Pool{pool(ours, "10.1.0.0/16", "tombolo")}, "remove [" + ours + "] make [10.1.0.0/16] taken []"},
		"it has to go":     {"", []pools.Pool{pool(ours, "10.1.0.0/16", "tombolo", "disabled")}, "remove [" + ours + "] make [] taken []"},
		"the label on another one": {"", []pools.Pool{pool("theirs", "10.1.0.0/16", "tombolo", "disabled"),
			pool(ours, "10.7.0.0/16", "tombolo", "disabled")}, "remove [] make [] taken []"},
		"the name without the label": {"", []pools.Pool{pool(ours, "10.1.0.0/16", "disabled")}, "remove [] make [] taken []"},
		"another one covers it": {"10.1.0.0/16", []pools.Pool{pool("theirs", "10.0.0.0/8")},
			"remove [] make [] taken []"},
		"another one of its name covers it": {"10.1.0.0/16", []pools.Pool{pool(ours, "10.1.0.0/16", "helm")}, "remove [] make [] taken []"},
		"another one covers a part":         {"10.1.0.0/16", []pools.Pool{pool("theirs", "10.1.2.0/24")}, "remove [] make [10.1.0.0/16] taken []"},
		"its name is taken":                 {"10.1.0.0/16", []pools.Pool{pool(ours, "10.7.0.0/16", "helm")}, "remove [] make [] taken [" + ours + "]"},
		"no CIDR":                           {"10.1.0.0/16", []pools.Pool{pool(ours, "x", "tombolo")}, "remove [] make [] taken [" + ours + "]"},
	} {
		out := pools.Decide(strings.Fields(c.wanted), c.have)
		var taken, made []string
		for _, p := range out.Make {
			made = append(made, p.CIDR)
		}
		for _, p := range out.Taken {
			taken = append(taken, p.Name)
		}
		if got := fmt.Sprintf("remove %v make %v taken %v", out.Remove, made, taken); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestBlockSize: Calico takes 20 to 32 and 116 to 128, and no pool that is smaller than a block.
func TestBlockSize(t *testing.T) {
	for text, want := range map[string]int{"10.0.0.0/8": 26, "10.1.0.0/16": 26, "10.1.0.0/26": 26, "10.1.0.0/27": 27,
		"10.1.0.0/32": 32, "fd00::/48": 122, "fd00::/122": 122, "fd00::/124": 124, "fd00::1/128": 128} {
		if got := pools.Decide([]string{text}, nil).Make; len(got) != 1 || got[0].BlockSize != want || got[0].CIDR != text {
			t.Errorf("%s: %+v, want %d", text, got, want)
		}
	}
}
