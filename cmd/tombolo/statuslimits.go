// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tombolo-io/tombolo/internal/base/admin"
)

// printMemory says what the hub uses, where that is bounded.
func printMemory(w io.Writer, m *admin.Memory) {
	if m == nil || m.Limit == 0 {
		return
	}
	full := ""
	if m.Full {
		full = ": nobody gets more"
	}
	fmt.Fprintf(w, "memory %s of %s%s\n", size(m.Used), size(m.Limit), full)
}

// printHits names the clusters that a limit has held up.
func printHits(w io.Writer, clusters []admin.ClusterStatus) {
	for _, c := range clusters {
		if c.Pressed {
			fmt.Fprintf(w, "\nwarning: the hub is short of memory, and cluster %s, which uses the most, gets no more\n", c.Name)
		}
		if c.LimitHits > 0 {
			fmt.Fprintf(w, "\nlimits have held up cluster %s %d times: tombolo status %s\n", c.Name, c.LimitHits, c.Name)
		}
	}
}

// printLimits shows what is used of what may be used.
func printLimits(w io.Writer, c admin.ClusterStatus) {
	if len(c.Limits) == 0 { // an older hub does not say
		return
	}
	fmt.Fprintln(w)
	if c.Pressed {
		fmt.Fprintln(w, "the hub is short of memory, and this cluster, which uses the most, gets no more")
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "LIMIT\tUSED\tOF\tHITS\tWAITING")
	for _, l := range c.Limits {
		name := l.Scope + "." + l.Limit
		if l.Who != "" {
			name += " (" + l.Who + ")"
		}
		figure := func(n int64) string { return fmt.Sprint(n) }
		if strings.Contains(strings.ToLower(l.Limit), "bytes") {
			figure = size
		}
		bound := "-"
		if l.Bound > 0 {
			bound = figure(l.Bound)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\n", name, figure(l.Used), bound, l.Hits, l.Waiting)
	}
	tw.Flush()
}
