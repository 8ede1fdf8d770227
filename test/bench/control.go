// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The driver talks to each of its processes over two pipes, one JSON object for
// each request and one for its answer, in order. A process ends when its pipe does.

type request struct {
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

type response struct {
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

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

// errUnknown answers a request that the role does not know.
var errUnknown = errors.New("the role does not know this request")

// arguments decodes the arguments of a request.
func arguments[T any](raw json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err
}

// serveRole answers the driver until its pipe ends.
func serveRole(r role, in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	var w window
	for {
		var req request
		if err := requests.Decode(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		result, err := w.answer(r, req)
		var res response
		if err == nil {
			res.Result, err = json.Marshal(result)
		}
		if err != nil {
			res = response{Error: fmt.Sprintf("%s: %v", req.Op, err)}
		}
		if err := answers.Encode(res); err != nil {
			return err
		}
	}
}

// window is the measured window of a process.
type window struct {
	begin          time.Time
	cpu            time.Duration
	received, sent int64
	profile        string
	file           *os.File
}

func (w *window) answer(r role, req request) (any, error) {
	switch req.Op {
	case opBegin:
		args, err := arguments[windowArgs](req.Args)
		if err != nil {
			return nil, err
		}
		return nil, w.open(r.counters(), args)
	case opEnd:
		return w.close(r.counters())
	case opMemory:
		return settledMemory(), nil
	}
	return r.do(req.Op, req.Args)
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
	w.begin, w.cpu = time.Now(), cpuTime()
	w.received, w.sent = t.received.Load(), t.sent.Load()
	return nil
}

func (w *window) close(t *traffic) (usage, error) {
	u := usage{
		CPU: cpuTime() - w.cpu, Wall: time.Since(w.begin),
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

// cpuTime is the user and system time of this process so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no cause that a run could meet
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
