// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// key names what samples of several rounds are of.
type key struct{ measurement, variant, transport string }

// series gives the values of a metric by round.
func series(records []record, k key, m metric) map[int]float64 {
	out := map[int]float64{}
	for _, r := range records {
		if r.Measurement == k.measurement && r.Variant == k.variant && r.Transport == k.transport {
			if v, ok := r.Values[m]; ok {
				out[r.Round] = v
			}
		}
	}
	return out
}

// summary is the spread of a metric over the rounds.
func summary(records []record, k key, m metric) spreadOf {
	var out []float64
	for _, v := range series(records, k, m) {
		out = append(out, v)
	}
	return summarize(out)
}

// printTable prints a measurement: a line for each case and transport, the
// median and the spread of each metric, and the ratio to the transport that the
// measurement is held against.
func printTable(w io.Writer, m measurement, records []record) {
	var columns []metric
	for _, c := range order() {
		if slices.ContainsFunc(records, func(r record) bool {
			_, ok := r.Values[c]
			return ok && r.Measurement == m.name
		}) {
			columns = append(columns, c)
		}
	}
	fmt.Fprintf(w, "\n%s: %s\n", m.name, m.about)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	head := []string{"", ""}
	for _, c := range columns {
		head = append(head, units()[c].name)
	}
	compared := slices.Contains(m.transports, m.against)
	if compared {
		head = append(head, "/ "+m.against)
		for _, c := range costs(columns) {
			head = append(head, c.name+" / "+m.against)
		}
	}
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, variant := range m.variants {
		for _, name := range m.transports {
			k := key{m.name, variant, name}
			row := []string{variant, name}
			for _, c := range columns {
				row = append(row, summary(records, k, c).String())
			}
			if compared {
				row = append(row, ratioTo(records, k, m.against, m.main))
				for _, c := range costs(columns) {
					row = append(row, ratioTo(records, k, m.against, c.metric))
				}
			}
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
	}
	tw.Flush()
}

// spent is a metric whose ratio is printed beside that of the main one, and the head of its column.
type spent struct {
	name string
	metric
}

// costs are those among the columns. What a door spends alone has no ends of the load in it, which bound a rate.
func costs(columns []metric) (out []spent) {
	for _, c := range []spent{{"cpu", cost}, {"door-cpu", doorCost}, {"door-cpu", doorPerOpen}} {
		if slices.Contains(columns, c.metric) {
			out = append(out, c)
		}
	}
	return out
}

// ratioTo is the median of the rounds' ratios to another transport.
func ratioTo(records []record, k key, against string, m metric) string {
	base := k
	base.transport = against
	s := summarize(ratios(series(records, k, m), series(records, base, m)))
	if s.N == 0 {
		return "-"
	}
	return number(s.Median)
}

// String is the median, and the spread when there is one.
func (s spreadOf) String() string {
	switch {
	case s.N == 0:
		return "-"
	case s.N == 1 || s.Min == s.Max:
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number writes three significant digits.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v == math.Trunc(v) && math.Abs(v) < 1e15, math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return fmt.Sprintf("%.*f", min(digits, 4), v)
}
