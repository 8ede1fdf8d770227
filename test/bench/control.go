// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/test/roles"
)

// The requests that every role answers.
const (
	opBegin  = "begin"  // a measured window begins; args: windowArgs
	opEnd    = "end"    // it ends; result: usage
	opMemory = "memory" // collect garbage and say what is in use; result: memory
)

// windowArgs begin a measured window.
type windowArgs struct {
	Profile string `json:"profile,omitempty"` // path without suffix; empty: none
}

// usage is what one process did in a measured window.
type usage struct {
	Wall     time.Duration `json:"wall"`
	CPU      time.Duration `json:"cpu"` // user and system
	Received int64         `json:"received"`
	Sent     int64         `json:"sent"`
}

// memory is what one Go process holds after a collection.
type memory struct {
	InUse      int64 `json:"inUse"` // spans of the heap and stacks that are in use
	Live       int64 `json:"live"`  // objects of the heap
	Stacks     int64 `json:"stacks"`
	Goroutines int   `json:"goroutines"`
}

// role is what a process of the benchmark does.
type role interface {
	do(op string, args json.RawMessage) (any, error)
	counters() *traffic
}

// traffic counts the payload that the role's ends have moved.
type traffic struct{ received, sent atomic.Int64 }

// window is the measured window of a process.
type window struct {
	begin          time.Time
	cpu            time.Duration
	received, sent int64
	profile        string
	file           *os.File
}

// windowed answers what every role answers, and passes the rest on.
type windowed struct {
	role
	w window
}

// Do implements roles.Role.
func (r *windowed) Do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opBegin:
		args, err := roles.Arguments[windowArgs](raw)
		if err != nil {
			return nil, err
		}
		return nil, r.w.open(r.counters(), args)
	case opEnd:
		return r.w.close(r.counters())
	case opMemory:
		return settledMemory(), nil
	}
	return r.do(op, raw)
}

func (w *window) open(t *traffic, args windowArgs) error {
	if w.profile = args.Profile; w.profile != "" {
		if err := os.MkdirAll(filepath.Dir(w.profile), 0o755); err != nil {
			return err
		}
		var err error
		if w.file, err = os.Create(w.profile + ".cpu.pprof"); err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(w.file); err != nil {
			return err
		}
	}
	w.begin, w.cpu = time.Now(), roles.CPUTime()
	w.received, w.sent = t.received.Load(), t.sent.Load()
	return nil
}

func (w *window) close(t *traffic) (usage, error) {
	u := usage{
		CPU: roles.CPUTime() - w.cpu, Wall: time.Since(w.begin),
		Received: t.received.Load() - w.received, Sent: t.sent.Load() - w.sent,
	}
	if w.profile == "" {
		return u, nil
	}
	pprof.StopCPUProfile()
	err := w.file.Close()
	allocs, cerr := os.Create(w.profile + ".allocs.pprof")
	if cerr != nil {
		return u, errors.Join(err, cerr)
	}
	return u, errors.Join(err, pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
}

// settledMemory collects twice, so that what finalizers and pools held goes too.
func settledMemory() memory {
	for range 3 { // a sync.Pool lets go after two collections
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{
		InUse: int64(m.HeapInuse + m.StackInuse), Live: int64(m.HeapAlloc), Stacks: int64(m.StackInuse),
		Goroutines: runtime.NumGoroutine(),
	}
}
