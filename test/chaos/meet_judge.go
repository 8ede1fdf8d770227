// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// direct is a watcher of one replica alone, which may lose its stream only with it.
type direct struct {
	*watcher
	number int
	at     string
	gone   []period // when that replica was not there
}

// endsWithout are the ends of streams at moments at which their replica was there.
func endsWithout(ends []time.Time, gone []period) (out []time.Time) {
	for _, end := range ends {
		if !slices.ContainsFunc(gone, func(p period) bool { return !end.Before(p.from) && !end.After(p.to) }) {
			out = append(out, end)
		}
	}
	return out
}

// judge prints what came out.
func (m *meeting) judge(missed []string) {
	c := m.chr
	c.mu.Lock()
	defer c.mu.Unlock()
	f := judgeMeeting(c.deeds, c.sights, c.outages, m.distance)
	words, acked := 0, 0
	for _, all := range c.deeds {
		for _, d := range all {
			words++
			if d.acked {
				acked++
			}
		}
	}
	count := func(name string, list []string, note string) {
		if len(list) > 0 {
			note = "the first: " + strings.Join(list[:min(3, len(list))], "; ")
		}
		m.line(line{name: m.title + ": " + name, value: float64(len(list)), target: 0, note: note})
	}
	m.line(line{name: m.title + ": messages that watchers read", value: float64(len(c.sights)), target: 100, atLeast: true,
		note: fmt.Sprintf("%d words of members, %d taken; %d streams of %d watchers; %s", words, acked, c.streams, len(m.all()), m.done())})
	count("watchers that missed a final state", missed, "")
	count("members that vanished while their lease lived", f.vanished, fmt.Sprintf("%d absences looked at", f.absences))
	count("members that stayed when a later lease had ended", f.stayed, fmt.Sprintf("%d pairs looked at", f.ends))
	count("words that were skipped for later ones", f.skipped, fmt.Sprintf("%d looked at", f.orders))
	count("versions that went back on a stream", f.back, fmt.Sprintf("%d looked at", f.versions))
	count("words that nobody said, and entries that do not open", append(f.invented, c.wrong...), "")
	if len(m.direct) > 0 {
		var cut []string
		streams := 0
		for _, one := range m.direct {
			streams += one.streams
			for _, end := range endsWithout(one.ends, one.gone) {
				cut = append(cut, fmt.Sprintf("%s at %.1f s", one.name, end.Sub(m.began).Seconds()))
			}
		}
		count("streams that ended though their replica lived", cut, fmt.Sprintf("%d looked at", streams))
	}
}

// done is what happened, and how often.
func (m *meeting) done() string {
	var out []string
	for name, n := range m.counts {
		out = append(out, fmt.Sprintf("%dx %s", n, name))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
