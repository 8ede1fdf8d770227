// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// fault is something that goes wrong with a cluster, or with the hub.
type fault struct {
	name   string
	own    bool // the cluster that it happens to may feel it
	all    bool // every cluster may
	killed bool // the hub dies without a word
	disk   bool // records cannot be written meanwhile
	needs  func(w *world) (why string)
	do     func(ctx context.Context, w *world, c *cluster) error
}

func faults() []fault {
	return []fault{
		{name: "the hub is killed", all: true, killed: true, do: killHub},
		{name: "the hub restarts in order", all: true, do: restartHub},
		{name: "the hub stands still", all: true, do: func(ctx context.Context, w *world, _ *cluster) error {
			return standStill(ctx, w.hub, 2*time.Second)
		}},
		{name: "an agent is killed", own: true, do: killAgent},
		{name: "an agent goes silent: a half-open link", own: true, do: func(ctx context.Context, w *world, c *cluster) error {
			return standStill(ctx, c.agent, w.pace.fault)
		}},
		{name: "an agent sleeps until its certificate has run out", own: true, do: func(ctx context.Context, w *world, c *cluster) error {
			return standStill(ctx, c.agent, w.pace.life+2*time.Second)
		}},
		{name: "readers that do not read", do: slowReaders},
		{name: "hostile unknown peers", do: func(ctx context.Context, w *world, _ *cluster) error { return w.unknownPeers(ctx) }},
		{name: "hostile callers", own: true, do: func(ctx context.Context, w *world, c *cluster) error { return w.callers(ctx, c) }},
		{name: "the disk is full", disk: true, needs: func(w *world) string {
			if !w.mounted {
				return "a disk of its own needs root"
			}
			return ""
		}, do: fullDisk},
	}
}

func killHub(ctx context.Context, w *world, _ *cluster) error {
	if err := signal(w.hub, syscall.SIGKILL); err != nil {
		return err
	}
	w.hub.Wait()
	w.kills++
	return w.startHub(ctx)
}

func restartHub(ctx context.Context, w *world, _ *cluster) error {
	if err := w.hub.Stop(30 * time.Second); err != nil {
		return fmt.Errorf("it did not end in order: %w", err)
	}
	return w.startHub(ctx)
}

func killAgent(ctx context.Context, w *world, c *cluster) error {
	if err := signal(c.agent, syscall.SIGKILL); err != nil {
		return err
	}
	c.agent.Wait()
	run.Wait(ctx, w.pace.fault/3)
	return w.startAgent(ctx, c, "")
}

// standStill stops a process and lets it go on: its connections stay, and nobody
// answers on them.
func standStill(ctx context.Context, p interface{ Signal(syscall.Signal) error }, d time.Duration) error {
	if err := signal(p, syscall.SIGSTOP); err != nil {
		return err
	}
	run.Wait(ctx, d)
	return signal(p, syscall.SIGCONT)
}

// slowReaders opens streams that bring more than any window holds, to callers that
// read nothing for a while. They are honest in the end: every byte is checked.
func slowReaders(ctx context.Context, w *world, c *cluster) error {
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			w.call(context.WithoutCancel(ctx), c, stream{up: 100, down: 3 << 20, piece: 64 << 10, stall: w.pace.fault})
		})
	}
	wg.Wait()
	return nil
}

// fullDisk leaves no room for state and records. The hub goes on, says so to who
// wants something written, and goes on writing when there is room.
func fullDisk(ctx context.Context, w *world, c *cluster) error {
	empty, err := fillDisk(w.disk)
	if err != nil {
		return err
	}
	defer empty() // nothing, if it is done
	_, full := w.tombolo(ctx, "token", "create", "--cluster", c.name)
	run.Wait(ctx, w.pace.fault)
	if err := empty(); err != nil {
		return err
	}
	if _, err := w.tombolo(ctx, "token", "create", "--cluster", c.name); err != nil {
		return fmt.Errorf("with room again (on the full disk: %v): %w", full, err)
	}
	return nil
}

// fillDisk fills the disk under a folder to the last page, until empty is called.
func fillDisk(dir string) (empty func() error, err error) {
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	empty = sync.OnceValue(func() error { return errors.Join(f.Close(), os.Remove(path)) })
	fill := make([]byte, 1<<20)
	for {
		if _, err = f.Write(fill); err != nil {
			break
		}
	}
	for errors.Is(err, syscall.ENOSPC) && len(fill) > 1 { // to the last page
		fill = fill[:len(fill)/2]
		if _, err = f.Write(fill); err == nil {
			err = syscall.ENOSPC
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return nil, errors.Join(err, empty())
	}
	return empty, nil
}
