// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// Node is what one node has found.
type Node struct {
	Node     string    `json:"node"` // CLUSTER.NODE, or the Node's name where it was not checked
	Findings []Finding `json:"findings"`
	Why      string    `json:"notChecked,omitempty"` // it could not be checked
	Next     string    `json:"next,omitempty"`       // what to do about that
}

// Count is how many findings have a state.
func (n Node) Count(state string) (count int) {
	for _, f := range n.Findings {
		if f.State == state {
			count++
		}
	}
	return count
}

// Print shows what nodes have found: what is not well with the next step, and of what is well the number.
//
//	all: what is well too
func Print(w io.Writer, nodes []Node, all bool) error {
	for _, n := range nodes {
		if n.Why != "" {
			if _, err := fmt.Fprintf(w, "%s: not checked: %s\n  next: %s\n", n.Node, n.Why, n.Next); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s: ok: %d, unknown: %d, warnings: %d, problems: %d\n", n.Node, n.Count(OK), n.Count(Unknown),
			n.Count(Warning), n.Count(Problem))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, f := range n.Findings {
			if f.State == OK && !all {
				continue
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", f.State, f.Check, cmp.Or(f.Peer, f.Cluster, "-"), f.Detail)
			if f.Next != "" {
				fmt.Fprintf(t, "  \t\t\tnext: %s\n", f.Next)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}
