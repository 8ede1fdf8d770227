// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/test/roles"
)

// The requests that a hub answers, beside opStart (args: hubArgs).
const (
	opClusters = "clusters" // args: how many there shall be
	opLimits   = "limits"   // args: limitsArgs; what a cluster may use from now on
	opBegin    = "begin"    // args: loadArgs; a load begins; result: its number
	opEnd      = "end"      // args: its number; result: loadResult
	opLook     = "look"     // result: look
	opProfile  = "profile"  // args: profileArgs; a CPU profile of a while, and one of the heap
)

// hubArgs start a hub.
type hubArgs struct {
	Dir      string     `json:"dir"`
	Listen   string     `json:"listen"`
	Admin    string     `json:"admin"`
	Clusters int        `json:"clusters"`
	Policies string     `json:"policies,omitempty"` // a folder
	Limits   limitsArgs `json:"limits"`
}

// limitsArgs bound one cluster.
type limitsArgs struct {
	Cluster int    `json:"cluster"`
	Bounds  string `json:"bounds"` // as in a configuration; empty: those that hold by default
}

// look is what the hub's process says of itself.
type look struct {
	Sessions    int   `json:"sessions"`
	Goroutines  int   `json:"goroutines"`
	Live        int64 `json:"live"`    // objects of the heap after a collection
	Stacks      int64 `json:"stacks"`  // of goroutines, after it
	Resident    int64 `json:"rss"`     // as it stands
	Settled     int64 `json:"settled"` // RSS when what is free was given back
	Descriptors int   `json:"descriptors"`
}

// profileArgs say where profiles go: a path without suffix.
type profileArgs struct {
	Path string        `json:"path"`
	For  time.Duration `json:"for"`
}

// hubRole is the role of a hub: the product's, with the callers beside it in the
// same process, because 100,000 unix sockets would need 200,000 descriptors.
type hubRole struct {
	args  hubArgs
	hub   *hub.Hub
	loads map[int]*load
	last  int
}

// Do implements roles.Role.
func (r *hubRole) Do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opStart:
		return nil, r.start(raw)
	case opClusters:
		n, err := roles.Arguments[int](raw)
		if err != nil {
			return nil, err
		}
		cfg, err := r.config(n)
		if err != nil {
			return nil, err
		}
		return nil, r.hub.Reload(cfg)
	case opLimits:
		return nil, r.limit(raw)
	case opBegin:
		return r.begin(raw)
	case opEnd:
		n, err := roles.Arguments[int](raw)
		l := r.loads[n]
		if err != nil || l == nil {
			return nil, errors.Join(err, fmt.Errorf("there is no load %d", n))
		}
		delete(r.loads, n) // a soak has many
		return l.end(), nil
	case opChange:
		return r.change(raw)
	case opLook:
		return r.look()
	case opProfile:
		return nil, profile(raw)
	}
	return nil, roles.ErrUnknown
}

// config is that of a hub with clusters c0 to c(n-1).
func (r *hubRole) config(n int) (hub.Config, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nstateDir: %[1]s/hub\nrunDir: %[1]s/run\n"+
		"listen: %[2]q\nadvertise: [%[2]q]\nadmin: {listen: %[3]q}\nclusters:\n", r.args.Dir, r.args.Listen, r.args.Admin)
	for i := range n {
		bounds := ""
		if i == r.args.Limits.Cluster && r.args.Limits.Bounds != "" {
			bounds = ", limits: {cluster: " + r.args.Limits.Bounds + "}"
		}
		fmt.Fprintf(&text, "- {name: %s%s}\n", clusterName(i), bounds)
	}
	if r.args.Policies != "" {
		fmt.Fprintf(&text, "policies: [%q]\n", r.args.Policies)
	}
	cfg, err := hub.ParseConfig("hub.yaml", []byte(text.String()))
	cfg.Version = "scale"
	return cfg, err
}

func (r *hubRole) limit(raw json.RawMessage) (err error) {
	if r.args.Limits, err = roles.Arguments[limitsArgs](raw); err != nil {
		return err
	}
	cfg, err := r.config(r.args.Clusters)
	if err != nil {
		return err
	}
	return r.hub.Reload(cfg)
}

func (r *hubRole) start(raw json.RawMessage) (err error) {
	if r.args, err = roles.Arguments[hubArgs](raw); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(r.args.Dir, "hub.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cfg, err := r.config(max(1, r.args.Clusters))
	if err != nil {
		return err
	}
	h, err := hub.New(cfg, hub.Options{Log: slog.New(slog.NewTextHandler(f, nil)), Reg: prometheus.NewRegistry()})
	if err != nil {
		return err
	}
	r.hub = h
	ended := make(chan error, 1)
	go func() { ended <- h.Run(context.Background(), context.Background()) }()
	select {
	case <-h.Ready():
		return nil
	case err := <-ended:
		return errors.Join(errors.New("the hub did not start"), err)
	}
}

func (r *hubRole) look() (look, error) {
	out, err := lookAtOwn()
	for _, c := range r.hub.Status().Clusters {
		for _, a := range c.Agents {
			if a.Connected {
				out.Sessions++
			}
		}
	}
	return out, err
}

// lookAtOwn takes what stands first, then collects and gives back what is free.
func lookAtOwn() (out look, err error) {
	if out.Resident, err = roles.Resident(os.Getpid()); err != nil {
		return out, err
	}
	if out.Descriptors, err = roles.Descriptors(os.Getpid()); err != nil {
		return out, err
	}
	out.Goroutines = runtime.NumGoroutine()
	runtime.GC() // a sync.Pool lets go after two collections
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out.Live, out.Stacks = int64(m.HeapAlloc), int64(m.StackInuse)
	out.Settled, err = roles.Resident(os.Getpid())
	return out, err
}

func profile(raw json.RawMessage) error {
	args, err := roles.Arguments[profileArgs](raw)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(args.Path), 0o755); err != nil {
		return err
	}
	cpu, err := os.Create(args.Path + ".cpu.pprof")
	if err != nil {
		return err
	}
	defer cpu.Close()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	time.Sleep(args.For)
	pprof.StopCPUProfile()
	for _, name := range []string{"heap", "goroutine", "mutex"} {
		f, err := os.Create(args.Path + "." + name + ".pprof")
		if err != nil {
			return err
		}
		if err := errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
