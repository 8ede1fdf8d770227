// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// costs are what one hub spends, as measured, and what it has. They are the
// inputs of the arithmetic and of the simulation; -costs replaces them.
type costs struct {
	sessionKB   float64 // RSS of an idle session
	streamKB    float64 // RSS of an idle stream
	streams     float64 // idle streams of a session, on the average
	handshakeMS float64 // CPU of the hub for a session: TLS, Hello, begin and end
	pingUS      float64 // CPU of the hub for a ping and its answer
	dialUS      float64 // CPU of the hub for a dial and its end
	memoryGB    float64 // of the hub's machine
	cores       float64
	descriptors float64
}

// measured are the figures of docs/scaling.md, for a machine of ordinary size.
func measured() costs {
	return costs{
		sessionKB: 52.4, streamKB: 1.9, streams: 5, handshakeMS: 0.85, pingUS: 30, dialUS: 250,
		memoryGB: 16, cores: 8, descriptors: 1 << 20,
	}
}

// Set reads "session=60,cores=16": one flag for all.
func (c *costs) Set(text string) error {
	fields := map[string]*float64{
		"session": &c.sessionKB, "stream": &c.streamKB, "streams": &c.streams, "handshake": &c.handshakeMS, "ping": &c.pingUS,
		"dial": &c.dialUS, "memory": &c.memoryGB, "cores": &c.cores, "descriptors": &c.descriptors,
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		field, ok := fields[strings.TrimSpace(name)]
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("%q is none of session, stream, streams, handshake, ping, dial, memory, cores and descriptors with a positive number", pair)
		}
		*field = v
	}
	return nil
}

// String is the default that the help shows.
func (c *costs) String() string {
	if c == nil || *c == (costs{}) {
		return ""
	}
	return fmt.Sprintf("session=%g,stream=%g,streams=%g,handshake=%g,ping=%g,dial=%g,memory=%g,cores=%g,descriptors=%g",
		c.sessionKB, c.streamKB, c.streams, c.handshakeMS, c.pingUS, c.dialUS, c.memoryGB, c.cores, c.descriptors)
}

// Shares of a hub that are planned for; the rest is for what comes at once.
const (
	memoryShare    = 0.6 // of the memory: a storm and bytes on their way take the rest
	pingShare      = 0.1 // of the processors
	handshakeShare = 0.7 // of the processors in a storm: live streams go on
	dialShare      = 0.4 // of the processors
	zones          = 3   // of hubs; one may be lost
)

// capacity is what one hub can do.
type capacity struct {
	memory, descriptors, pings float64 // sessions, by what bounds them
	handshakes, dials          float64 // a second
}

func (c costs) capacity() capacity {
	return capacity{
		memory: memoryShare * c.memoryGB * (1 << 20) / (c.sessionKB + c.streams*c.streamKB),
		// Above half of its descriptors a hub gives a session one connection only.
		descriptors: c.descriptors / 2,
		pings:       pingShare * c.cores * 1e6 * limit.PingIdle.Seconds() / c.pingUS,
		handshakes:  handshakeShare * c.cores * 1e3 / c.handshakeMS,
		dials:       dialShare * c.cores * 1e6 / c.dialUS,
	}
}

func (c capacity) sessions() float64 { return min(c.memory, c.descriptors, c.pings) }

// hubs is how many are needed for so many sessions, with one zone of them lost.
func (c capacity) hubs(sessions float64) int {
	n := int(math.Ceil(sessions / c.sessions() * zones / (zones - 1)))
	return max((n+zones-1)/zones*zones, zones)
}

// million is what the simulation is about.
const million = 1_000_000

// clustersOf is how many clusters a run simulates: nothing here costs much.
func (s size) clustersOf() int { return cmp.Or(s.clusters, million) }

// takePlacement prints the arithmetic, places the clusters in each way, and plays
// what can go wrong. All chance comes from one seed.
func takePlacement(_ context.Context, r *runner) error {
	began := time.Now()
	if r.costs == (costs{}) {
		r.costs = measured()
	}
	c := r.costs.capacity()
	clusters := r.clustersOf()
	one, two := c.hubs(float64(clusters)), c.hubs(2*float64(clusters))
	tw := tabwriter.NewWriter(r.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "one hub\t%g cores, %g GB, %s descriptors\n", r.costs.cores, r.costs.memoryGB, grouped(int(r.costs.descriptors)))
	for _, row := range []struct {
		what  string
		value float64
	}{
		{"sessions by memory", c.memory}, {"sessions by descriptors", c.descriptors}, {"sessions by pings", c.pings},
		{"handshakes a second, in a storm", c.handshakes}, {"dials a second", c.dials},
		{fmt.Sprintf("hubs for %s clusters, one session each", grouped(clusters)), float64(one)},
		{fmt.Sprintf("hubs for %s clusters, two sessions each", grouped(clusters)), float64(two)},
	} {
		fmt.Fprintf(tw, "%s\t%s\n", row.what, grouped(int(row.value)))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if err := r.placements(clusters, one); err != nil {
		return err
	}
	if err := r.outages(clusters, one, two, c.handshakes); err != nil {
		return err
	}
	r.say("placement  simulated in %v", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// placements compares the ways to place clusters on hubs.
func (r *runner) placements(clusters, hubs int) error {
	tw := tabwriter.NewWriter(r.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "\nplacement on %d hubs\tsessions, max/mean\tdials, max/mean\tmoved by a hub that joins\tthen max/mean\tmoved by one that leaves\tthen max/mean\n", hubs)
	least := 1 / float64(hubs+1)
	for _, way := range ways() {
		p := comparePlacement(way, clusters, hubs)
		fmt.Fprintf(tw, "%s\t%.3f\t%.3f\t%.2f %%\t%.3f\t%.2f %%\t%.3f\n", way.name, p.sessions, p.dials, 100*p.joinMoved, p.joinThen, 100*p.leaveMoved, p.leaveThen)
		if err := r.results.Add(record{Measurement: "placement", At: clusters, Case: way.name, Values: map[string]float64{
			"hubs": float64(hubs), "sessionsMaxMean": p.sessions, "dialsMaxMean": p.dials, "joinMoved": p.joinMoved, "joinMaxMean": p.joinThen,
			"leaveMoved": p.leaveMoved, "leaveMaxMean": p.leaveThen,
		}}); err != nil {
			return err
		}
		if way.name != wayRendezvous {
			continue
		}
		if err := r.line(line{name: "sessions of the fullest hub by rendezvous, of the mean", value: p.sessions, target: 1.1}); err != nil {
			return err
		}
		if err := r.line(line{name: "clusters moved by a hub that joins, of the least that balance takes", value: p.joinMoved / least, target: 1.1}); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// outages plays what goes wrong.
func (r *runner) outages(clusters, one, two int, handshakes float64) error {
	tw := tabwriter.NewWriter(r.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nwhat happens\thubs\tsessions lost\tclusters without\ttries\tlost their place\thalf back\t99 % back\tall back\tthen max/mean")
	for _, o := range mishaps() {
		hubs := one
		if o.sessions == 2 {
			hubs = two
		}
		got := o.play(clusters, hubs, handshakes)
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.3f\n", o.name, hubs, grouped(got.lost), grouped(got.without), grouped(got.tries), grouped(got.shed),
			seconds(got.half), seconds(got.most), seconds(got.all), got.then)
		if err := r.results.Add(record{Measurement: "fail-over", At: clusters, Case: o.name, Values: map[string]float64{
			"hubs": float64(hubs), "lost": float64(got.lost), "without": float64(got.without), "tries": float64(got.tries), "shed": float64(got.shed),
			"halfSeconds": got.half.Seconds(), "mostSeconds": got.most.Seconds(), "allSeconds": got.all.Seconds(), "maxMean": got.then,
		}}); err != nil {
			return err
		}
		l := line{name: o.name + ": 99 % are back", value: got.most.Seconds(), target: o.within.Seconds(), unit: " s"}
		if o.never {
			l = line{name: o.name + ": clusters without a session", value: float64(got.without), target: 0}
		}
		if o.within == 0 && !o.never {
			continue
		}
		if err := r.line(l); err != nil {
			return err
		}
	}
	return tw.Flush()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
