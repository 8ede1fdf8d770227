// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
)

// ending is how a dial came out.
type ending string

const (
	notAsked ending = "not asked" // the socket took no connection
	unheard  ending = "unheard"   // asked, and cut off before an answer
	refused  ending = "refused"   // answered with a fault
	whole    ending = "whole"     // every byte, and the end in order
	cutOff   ending = "cut"       // opened, and lost before its end
)

// event is a dial of the history.
type event struct {
	id         uint64
	cluster    int
	asked      string // host:port, of this dial alone
	begin, end time.Time
	how        ending
	why        string
}

// span is a time in which something was wrong.
type span struct {
	name     string
	from, to time.Time
	clusters []int // which may feel it
	all      bool  // every one may
	killed   bool  // the hub was killed at its begin: what lived then has no record
	disk     bool  // records could not be written
}

func (s span) feels(cluster int) bool {
	if s.all {
		return true
	}
	for _, c := range s.clusters {
		if c == cluster {
			return true
		}
	}
	return false
}

// overlaps says whether a dial lived within the span.
func (s span) overlaps(e event) bool { return !e.end.Before(s.from) && !e.begin.After(s.to) }

// arrival is what a target saw of a stream.
type arrival struct {
	cluster int
	times   int
	got     int64 // bytes, all as they were meant
	whole   bool
	why     string // it is not
}

// history holds all dials and what became of them.
type history struct {
	mu       sync.Mutex
	next     uint64
	events   []event
	arrivals map[uint64]*arrival
	planned  map[uint64]int // the cluster of each id that is under way
	bad      []string       // bytes that were changed, doubled, lost or crossed over
	up, down int64
}

func newHistory() *history {
	return &history{arrivals: map[uint64]*arrival{}, planned: map[uint64]int{}}
}

// begin gives a stream its id.
func (h *history) begin(cluster int) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	h.planned[h.next] = cluster
	return h.next
}

// wrong notes what must never be.
func (h *history) wrong(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad = append(h.bad, fmt.Sprintf(format, args...))
}

// arrived notes that a target has read the head of a stream; it gives its arrival.
func (h *history) arrived(id uint64, cluster int) *arrival {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.arrivals[id]
	if a == nil {
		a = &arrival{cluster: cluster}
		h.arrivals[id] = a
	}
	a.times++
	switch want, ok := h.planned[id]; {
	case !ok:
		h.bad = append(h.bad, fmt.Sprintf("cluster %d got stream %d, which there is not", cluster, id))
	case want != cluster:
		h.bad = append(h.bad, fmt.Sprintf("stream %d of cluster %d came out in cluster %d", id, want, cluster))
	case a.times > 1:
		h.bad = append(h.bad, fmt.Sprintf("stream %d came out %d times", id, a.times))
	}
	return a
}

// end puts a dial into the history. wants is what its target should have got.
func (h *history) end(e event, wants, got int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.arrivals[e.id]
	// On a unix socket a stream that is cut ends as one that is over: the target
	// knows. If nothing was wrong meanwhile, judge says so.
	if e.how == whole && a != nil && !a.whole {
		e.how, e.why = cutOff, fmt.Sprintf("the caller read an end before its target had all %d bytes", wants)
	}
	if e.how == whole && (a == nil || a.got != wants) {
		h.bad = append(h.bad, fmt.Sprintf("stream %d ended in order, and its target had %+v of %d bytes", e.id, a, wants))
	}
	if e.how == refused && a != nil {
		h.bad = append(h.bad, fmt.Sprintf("stream %d was refused (%s), and its target had it", e.id, e.why))
	}
	if a != nil {
		h.up += a.got
	}
	h.down += got
	h.events = append(h.events, e)
}

// pattern is the bytes of one direction of one stream: any byte out of place shows.
type pattern struct {
	src  *rand.PCG
	word uint64
	left int
}

func newPattern(id uint64, direction uint64) *pattern {
	return &pattern{src: rand.NewPCG(id, direction)}
}

func (p *pattern) fill(b []byte) {
	for i := range b {
		if p.left == 0 {
			p.word, p.left = p.src.Uint64(), 8
		}
		b[i] = byte(p.word)
		p.word >>= 8
		p.left--
	}
}

// findings is the history held against the faults and the audit.
type findings struct {
	count       map[ending]int
	unexplained []event // refused, unheard or cut with nothing wrong that they may feel
	doubled     []event // more than one record
	missing     []event // no record, and nothing that explains it
	killed      int     // no record, because the hub was killed while or just after they lived
	lost        int     // no record while the disk was full
	summed      int     // refused, and in the count of a record that sums up refusals alike
}

// kept is what the audit holds.
type kept struct {
	records map[string]int // of single dials, by what was asked for
	summed  int64          // refusals that are counted in records of many
	lost    int64          // records that were told of as lost
}

// flush is how long a record may be on its way to the kernel.
const flush = time.Second

// judge is the check of the history: pure. A sum does not say what was asked for: so
// many refusals may lack a record of their own as sums count.
func judge(events []event, spans []span, in kept) (f findings) {
	f.count = map[ending]int{}
	for _, e := range events {
		f.count[e.how]++
		excused, killed, disk := false, false, false
		for _, s := range spans {
			if s.overlaps(e) && s.feels(e.cluster) {
				excused = true
			}
			before := s
			before.from, before.to = s.from.Add(-flush), s.from.Add(flush)
			killed = killed || s.killed && before.overlaps(e)
			after := s
			after.to = s.to.Add(flush)
			disk = disk || s.disk && after.overlaps(e)
		}
		if e.how != whole && !excused {
			f.unexplained = append(f.unexplained, e)
		}
		switch n := in.records[e.asked]; {
		case n > 1:
			f.doubled = append(f.doubled, e)
		case n == 1, e.how == notAsked, e.how == unheard && excused:
		case killed:
			f.killed++
		case disk:
			f.lost++
		case e.how == refused && int64(f.summed) < in.summed:
			f.summed++
		default:
			f.missing = append(f.missing, e)
		}
	}
	return f
}

// readAudit counts the records of all dials, those that stand for many, and those
// that were lost and told of.
func readAudit(path string) (kept, error) {
	files, err := audit.Files(path)
	if err != nil {
		return kept{}, err
	}
	out := kept{records: map[string]int{}}
	for _, file := range files {
		if err := readRecords(file, func(r audit.Record) {
			switch {
			case r.Kind == audit.KindLost:
				out.lost += r.Count
			case r.Count > 0:
				out.summed += r.Count
			default:
				out.records[r.Asked]++
			}
		}); err != nil {
			return kept{}, err
		}
	}
	return out, nil
}

// readRecords reads one file. A line that a killed hub has not finished is no record.
func readRecords(file string, take func(audit.Record)) error {
	in, err := audit.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	r := audit.NewReader(file, in)
	for {
		rec, err := r.Next()
		var broken *audit.Broken
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &broken):
			continue
		case err != nil:
			return err
		}
		take(rec)
	}
}
