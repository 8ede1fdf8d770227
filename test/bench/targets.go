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

// target is one line of the quick run. Its value is a median over the rounds,
// of ratios within a round where it is a ratio; of several cases the worst one.
type target struct {
	name    string
	what    string // the unit, or what a ratio refers to
	must    float64
	stretch float64 // 0: there is none
	atMost  bool    // less is better
	from    []figure
}

// figure is what a target looks at: a metric, alone or against another one.
type figure struct {
	of, to  key // to empty: alone
	m       metric
	divided float64 // 0 means 1: the unit of an absolute figure
}

func (f figure) measurements() []string {
	out := []string{f.of.measurement}
	if f.to != (key{}) {
		out = append(out, f.to.measurement)
	}
	return out
}

// value sums a figure up over the rounds.
func (f figure) value(records []record) spreadOf {
	of := series(records, f.of, f.m)
	if f.to != (key{}) {
		return summarize(ratios(of, series(records, f.to, f.m)))
	}
	var out []float64
	for _, v := range of {
		if f.divided != 0 {
			v /= f.divided
		}
		out = append(out, v)
	}
	return summarize(out)
}

// against makes the ratios of one measurement to another transport, case by case.
func against(measurement, of, to string, m metric, variants ...string) (out []figure) {
	for _, c := range variants {
		out = append(out, figure{of: key{measurement, c, of}, to: key{measurement, c, to}, m: m})
	}
	return out
}

// targets is the list, with so many connections for a session under load.
func targets(lanes int) []target {
	mux, yamux := fmt.Sprintf("mux%d", lanes), fmt.Sprintf("yamux%d", lanes)
	lossMux := fmt.Sprintf("mux%d", lossyStreams)
	const tls, relay, tombolo = kindTLS, chainRelay, chainTombolo
	beside := func(m metric, to key) (out []figure) {
		for _, c := range []string{down, up} {
			if to.measurement == "pingbulk" {
				to.variant = c
			}
			out = append(out, figure{of: key{"pingbulk", c, mux}, to: to, m: m})
		}
		return out
	}
	both := func(measurement, of, to string, m metric) []figure { return against(measurement, of, to, m, down, up) }
	doors := func(measurement string, m metric, variants ...string) []figure { // the better one is the harder one
		return append(against(measurement, doorEdge, doorHAProxy, m, variants...),
			against(measurement, doorEdge, doorNginx, m, variants...)...)
	}
	alone := func(measurement, variant string, m metric, divided float64) []figure {
		return []figure{{of: key{measurement, variant, doorEdge}, m: m, divided: divided}}
	}
	return []target{
		{"one stream, rate", "of TLS", 0.65, 0.8, false, both("bulk1", mux, tls, rate)},
		{"16 streams, rate", "of TLS", 0.9, 1.0, false, both("bulk16", mux, tls, rate)},
		{"one stream, CPU per GB", "of TLS", 1.35, 1.15, true, both("bulk1", mux, tls, cost)},
		{"16 streams, CPU per GB", "of TLS", 1.1, 0, true, both("bulk16", mux, tls, cost)},
		{"idle ping, p50", "of TLS", 2, 0, true, against("ping", mux, tls, p50, "idle")},
		{"ping beside bulk, p50", "of the idle one", 5, 3, true, beside(p50, key{"ping", "idle", mux})},
		{"ping beside bulk, p99", "of TLS", 0.3, 0, true, beside(p99, key{measurement: "pingbulk", transport: tls})},
		{"CPU per GB", "of yamux", 0.85, 0, true, append(both("bulk1", "mux1", "yamux1", cost), both("bulk16", mux, yamux, cost)...)},
		{"ping beside bulk, p50", "of yamux", 0.4, 0.2, true, beside(p50, key{measurement: "pingbulk", transport: yamux})},
		{"memory of an idle stream, hub", "of yamux", 0.5, 0, true, against("memstreams", "mux1", "yamux1", hubBytes, "10000")},
		{"opens per second", "of TCP connects", 3, 0, false, against("opens", mux, kindTCP, perSecond, "32")},
		{"end to end, CONNECTs per second", "of TCP connects", 0.3, 0.36, false, against("e2eopens", tombolo, chainDirect, perSecond, "32")},
		{"end to end, one stream, rate", "of a TLS relay", 0.75, 0.85, false, both("e2e1", tombolo, relay, rate)},
		{"end to end, 16 streams, rate", "of a TLS relay", 0.9, 1.0, false, both("e2e16", tombolo, relay, rate)},
		{"end to end, one stream, CPU per GB", "of a TLS relay", 1.25, 1.15, true, both("e2e1", tombolo, relay, cost)},
		{"end to end, 16 streams, CPU per GB", "of a TLS relay", 1.15, 1.05, true, both("e2e16", tombolo, relay, cost)},
		{"end to end, idle ping, p50", "of a TLS relay", 1.3, 0, true, against("e2eping", tombolo, relay, p50, "idle")},
		{"50 ms path, one stream", "of 16 MiB in a round trip", 0.75, 0, false, []figure{{of: key{"long", "1", mux}, m: windowShare}}},
		{"40 MB/s bottleneck, ping p50", "of TLS", 4, 2, true, against("narrow", mux, tls, p50, down)},
		{"1 % loss, 4 streams, rate", "of 4 TLS connections", 0.9, 0, false, against("loss", lossMux, tls, rate, down)},
		{"1,000 stalled readers, the others", "of their rate alone", 0.9, 0, false, []figure{{of: key{"stalls", "1000", mux}, m: kept}}},
		{"memory of an idle stream, hub", "KB", 2.5, 0, true, []figure{{of: key{"memstreams", "10000", "mux1"}, m: hubBytes, divided: 1000}}},
		{"memory of an idle session, hub", "KB", 50, 0, true, []figure{{of: key{"memsessions", "1000", "mux1"}, m: hubBytes, divided: 1000}}},
		{"edge, rate", "of HAProxy and nginx", 0.95, 0, false, doors("edgebulk", rate, down, up)},
		{"edge, its CPU per GB", "of HAProxy and nginx", 1.1, 0, true, doors("edgebulk", doorCost, down, up)},
		{"edge, connections per second", "of HAProxy and nginx", 0.8, 0, false, doors("edgeopens", perSecond, "32")},
		{"edge, handshake, p99", "of HAProxy and nginx", 1.2, 0, true, doors("edgeshakes", p99, "4")},
		{"edge, memory of an idle tunnel", "KB", 10, 0, true, alone("memtunnels", "5000", doorBytes, 1000)},
		{"edge, descriptors of an idle tunnel", "in all", 2, 0, true, alone("memtunnels", "5000", doorFiles, 0)},
		{"edge, decisions by 1,000,000 entries", "millions a second", 1, 0, false, alone("edgepolicy", "1000000", decisions, 1e6)},
		{"edge, memory of an entry", "bytes", 200, 0, true, alone("edgepolicy", "1000000", entryBytes, 0)},
		{"edge, a change of one of 100,000 tenants", "of one of 1,000", 1.5, 0, true, []figure{{
			of: key{"edgechange", "100000", doorEdge}, to: key{"edgechange", "1000", doorEdge}, m: changeTime}}},
		{"routed mode, one stream, rate", "of a CONNECT", 0.35, 0.5, false, both("route", wayRouted, wayConnect, rate)},
		{"routed mode, one stream, rate", "of OpenVPN", 3, 0, false, both("route", wayRouted, wayOpenVPN, rate)},
		{"konnectivity, dials per second", "of the reference", 0.9, 1.8, false, append(
			against("konnopens", egressDropIn, egressReference, perSecond, "32"),
			against("konncopens", egressDropIn, egressReference, perSecond, "32")...)},
		{"konnectivity, CPU for a dial of server and agent", "of the reference", 1, 0.56, true, append(
			against("konnopens", egressDropIn, egressReference, doorPerOpen, "32"),
			against("konncopens", egressDropIn, egressReference, doorPerOpen, "32")...)},
		{"konnectivity, one stream, CPU per GB of server and agent", "of the reference", 0.7, 0.4, true,
			both("konn1", egressDropIn, egressReference, doorCost)},
		{"konnectivity by gRPC, memory of an idle connection", "of the reference", 0.55, 0.5, true,
			against("konnmem", egressDropIn, egressReference, idleBytes, "1000")},
		{"konnectivity by CONNECT, memory of an idle connection", "of the reference", 0.35, 0, true,
			against("konncmem", egressDropIn, egressReference, idleBytes, "1000")},
		{"routed mode, memory of an idle connection", "KiB", 40, 0, true, []figure{{
			of: key{"route", "idle", wayRouted}, m: routeBytes, divided: 1024}}},
	}
}

// verdict is the word at the end of a line.
type verdict string

const (
	good    verdict = "ok"
	better  verdict = "ok stretch"
	near    verdict = "near" // short by less than the rounds can tell
	short   verdict = "short"
	skipped verdict = "skipped"
)

// judge gives the value of the worst case, the case, and the verdict. A target
// without a figure is short: what was not measured is not met. One that is missed by
// less than the rounds can tell is near, and no failure: chance would decide.
func (t target) judge(records []record) (spreadOf, string, verdict) {
	worst, variant := spreadOf{Median: math.NaN()}, ""
	for _, f := range t.from {
		v := f.value(records)
		if v.N == 0 {
			return v, f.of.measurement + " " + f.of.variant, short
		}
		if math.IsNaN(worst.Median) || !t.met(v.Median, worst.Median) {
			worst, variant = v, strings.TrimSpace(f.of.measurement+" "+f.of.variant)
		}
	}
	edge := worst.high // the better end of what the rounds leave open
	if t.atMost {
		edge = worst.low
	}
	switch {
	case !t.met(worst.Median, t.must) && t.met(edge, t.must):
		return worst, variant, near
	case !t.met(worst.Median, t.must):
		return worst, variant, short
	case t.stretch != 0 && t.met(worst.Median, t.stretch):
		return worst, variant, better
	}
	return worst, variant, good
}

func (t target) met(value, bound float64) bool {
	if t.atMost {
		return value <= bound
	}
	return value >= bound
}

// bound is how the bounds of a target are written.
func (t target) bound() string {
	sign := ">="
	if t.atMost {
		sign = "<="
	}
	if t.stretch == 0 {
		return fmt.Sprintf("%s %s", sign, number(t.must))
	}
	return fmt.Sprintf("%s %s (%s)", sign, number(t.must), number(t.stretch))
}

// printTargets prints a line for each target and says whether one is short. out
// holds the measurements that could not be taken here, with the reason; those of
// a partial run that nobody asked for are left out.
func printTargets(w io.Writer, all []target, records []record, run []string, out map[string]error) bool {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	failed := false
	for _, t := range all {
		missing, why := false, error(nil)
		for _, f := range t.from {
			for _, m := range f.measurements() {
				missing = missing || !slices.Contains(run, m)
				if out[m] != nil {
					why = out[m]
				}
			}
		}
		switch {
		case why != nil:
			fmt.Fprintf(tw, "%s, %s\t-\t%s\t%s: %v\n", t.name, t.what, t.bound(), skipped, why)
			continue
		case missing:
			continue
		}
		v, variant, verdict := t.judge(records)
		failed = failed || verdict == short
		value := v.String()
		if len(t.from) > 1 || v.N == 0 {
			value += " " + variant
		}
		fmt.Fprintf(tw, "%s, %s\t%s\t%s\t%s\n", t.name, t.what, value, t.bound(), verdict)
	}
	tw.Flush()
	return failed
}

// quickly is what the quick run takes of a measurement.
type quickly struct {
	transports, variants []string
	rounds               int // 0: as many as the run
}

// quickPlan takes what the targets look at and no more, in under three minutes.
func quickPlan(lanes int) map[string]quickly {
	plan := map[string]quickly{}
	for _, t := range targets(lanes) {
		for _, f := range t.from {
			for _, k := range []key{f.to, f.of} {
				if k == (key{}) {
					continue
				}
				q := plan[k.measurement]
				if !slices.Contains(q.transports, k.transport) {
					q.transports = append(q.transports, k.transport)
				}
				if !slices.Contains(q.variants, k.variant) {
					q.variants = append(q.variants, k.variant)
				}
				plan[k.measurement] = q
			}
		}
	}
	// Memory does not vary, slow things are dear, a ping depends on whether a core
	// sleeps, and where the value is close to the target, chance shall not decide.
	for name, rounds := range map[string]int{
		"memstreams": 1, "memsessions": 1, "long": 2, "narrow": 2,
		"memtunnels": 1, "konnmem": 1, "konncmem": 1, "edgepolicy": 1, "edgechange": 1, "route": 3,
		"ping": 9, "e2eping": 9, "konnopens": 9, "konncopens": 9, "bulk16": 15, "e2e16": 9, "e2eopens": 9, "stalls": 9, "loss": 9,
	} {
		q := plan[name]
		q.rounds = rounds
		plan[name] = q
	}
	return plan
}
