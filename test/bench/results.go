// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/roles"
)

// metric is what a figure is about.
type metric string

// The metrics; their units are in units.
const (
	rate        metric = "rate"
	cost        metric = "cost"
	p50         metric = "p50"
	p99         metric = "p99"
	pings       metric = "pings"
	perSecond   metric = "perSecond"
	cpuPerOpen  metric = "cpuPerOpen"
	connections metric = "connections"
	kept        metric = "kept"
	windowShare metric = "windowShare"
	others      metric = "others"

	hubBytes        metric = "hubBytes"
	agentBytes      metric = "agentBytes"
	hubLive         metric = "hubLive"
	agentLive       metric = "agentLive"
	hubGoroutines   metric = "hubGoroutines"
	agentGoroutines metric = "agentGoroutines"

	doorCost       metric = "doorCost"
	doorPerOpen    metric = "doorPerOpen"
	doorBytes      metric = "doorBytes"
	doorLive       metric = "doorLive"
	doorStacks     metric = "doorStacks"
	doorFiles      metric = "doorFiles"
	doorGoroutines metric = "doorGoroutines"
	decisions      metric = "decisions"
	entryBytes     metric = "entryBytes"
	changeTime     metric = "changeTime"

	routeBytes metric = "routeBytes"

	idleBytes    metric = "idleBytes"
	idleResident metric = "idleResident"
)

// unit says how a metric is written, and which way is better.
type unit struct {
	name  string
	lower bool // less is better
	quiet bool // no figure to compare: left out of benchstat
}

func units() map[metric]unit {
	return map[metric]unit{
		rate: {name: "MB/s"}, cost: {name: "cpu-s/GB", lower: true},
		p50: {name: "p50-us", lower: true}, p99: {name: "p99-us", lower: true}, pings: {name: "pings", quiet: true},
		perSecond: {name: "opens/s"}, cpuPerOpen: {name: "cpu-us/open", lower: true},
		connections: {name: "conns", quiet: true}, others: {name: "other-cores", quiet: true},
		kept: {name: "kept"}, windowShare: {name: "of-window"},
		hubBytes: {name: "hub-B", lower: true}, agentBytes: {name: "agent-B", lower: true},
		hubLive: {name: "hub-live-B", lower: true}, agentLive: {name: "agent-live-B", lower: true},
		hubGoroutines: {name: "hub-goroutines", quiet: true}, agentGoroutines: {name: "agent-goroutines", quiet: true},
		doorCost: {name: "door-cpu-s/GB", lower: true}, doorPerOpen: {name: "door-cpu-us/open", lower: true},
		doorBytes: {name: "edge-B", lower: true}, doorLive: {name: "edge-live-B", lower: true},
		doorStacks: {name: "edge-stacks-B", lower: true},
		doorFiles:  {name: "edge-files", lower: true}, doorGoroutines: {name: "edge-goroutines", quiet: true},
		decisions: {name: "decisions/s"}, entryBytes: {name: "entry-B", lower: true}, changeTime: {name: "change-us", lower: true},
		routeBytes: {name: "route-B", lower: true},
		idleBytes:  {name: "idle-B", lower: true}, idleResident: {name: "idle-rss-B", lower: true},
	}
}

// order is the order of columns.
func order() []metric {
	return []metric{kept, rate, windowShare, cost, doorCost, p50, p99, perSecond, cpuPerOpen, doorPerOpen,
		doorBytes, doorLive, doorStacks, doorFiles, doorGoroutines, decisions, entryBytes, changeTime, routeBytes, idleBytes, idleResident,
		hubBytes, agentBytes, hubLive, agentLive, hubGoroutines, agentGoroutines, connections, others}
}

// record is one sample, one line of the file.
type record struct {
	Measurement string `json:"measurement"`
	Variant     string `json:"variant"`
	Transport   string `json:"transport"`
	Round       int    `json:"round"`
	Values      values `json:"values"`
}

// header is the first line of the file: what the figures are from.
type header struct {
	Begun    time.Time     `json:"begun"`
	CPU      string        `json:"cpu"`
	Cores    int           `json:"cores"`
	Kernel   string        `json:"kernel"`
	Control  string        `json:"congestionControl"`
	Go       string        `json:"go"`
	Version  string        `json:"version"`
	Rounds   int           `json:"rounds"`
	Window   time.Duration `json:"window"`
	Profiled bool          `json:"profiled,omitempty"`
}

// results keeps the samples of a run and writes each as it comes.
type results struct {
	*roles.Results
	records []record
}

func createResults(path string, h header) (*results, error) {
	file, err := roles.CreateResults(path, h)
	if err != nil {
		return nil, err
	}
	return &results{Results: file}, nil
}

func (r *results) add(rec record) error {
	r.records = append(r.records, rec)
	return r.Add(rec)
}

// readResults reads a saved run.
func readResults(from io.Reader) (h header, records []record, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if n == 1 {
			err = json.Unmarshal(lines.Bytes(), &h)
		} else {
			var rec record
			err = json.Unmarshal(lines.Bytes(), &rec)
			records = append(records, rec)
		}
		if err != nil {
			return h, nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return h, nil, err
	}
	if h.Begun.IsZero() || len(records) == 0 {
		return h, nil, errors.New("it holds no samples of a run")
	}
	return h, records, nil
}

// describe says what the figures of this run are from.
func describe(o options, now time.Time) header {
	h := header{
		Begun: now.UTC().Truncate(time.Second), CPU: "unknown", Cores: runtime.NumCPU(), Go: runtime.Version(), Version: version,
		Rounds: o.rounds, Window: o.window, Profiled: o.profile,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		h.CPU = processor(string(data))
	}
	if data, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		h.Control = strings.TrimSpace(string(data))
	}
	return h
}

// processor finds the processor's name in /proc/cpuinfo.
func processor(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
