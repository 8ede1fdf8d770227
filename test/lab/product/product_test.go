// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/test/lab"
)

// All tests of this package run hub and agents without rights; this one says so.
func TestHubAndAgentNeedNoRights(t *testing.T) {
	t.Parallel()
	r := newRig(t, "rights", 1, 1)
	r.startHub()
	agent := r.startAgent(0, 0)
	r.openSocket("c1")
	r.requireDial("c1")
	for name, x := range map[string]*role{"hub": r.hub, "agent": agent} {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.process.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "NoNewPrivs:\t1",
			"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
		} {
			if !strings.Contains(string(content), want) {
				t.Errorf("the %s's process has no %q", name, want)
			}
		}
		if readOnly, err := rootIsReadOnly(x.process.Pid()); err != nil || !readOnly {
			t.Errorf("the %s's root is read-only: %v (%v)", name, readOnly, err)
		}
	}
	for name, x := range map[string]*role{"agent": agent, "hub": r.hub} {
		if err := x.process.Stop(30 * time.Second); err != nil {
			t.Errorf("the %s ended with %v after SIGTERM, want exit code 0", name, err)
		}
	}
}

func rootIsReadOnly(pid int) (bool, error) {
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return false, err
	}
	readOnly := false
	for _, line := range strings.Split(string(mounts), "\n") {
		// proc_pid_mountinfo(5): the fifth field is the mount point, the sixth its options.
		if fields := strings.Fields(line); len(fields) > 5 && fields[4] == "/" {
			readOnly = strings.HasPrefix(fields[5], "ro") // the last one is on top
		}
	}
	return readOnly, nil
}

func TestEqualRangesGiveEachItsOwnAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, "equal", 2, 1)
	r.startHub()
	for i := range r.world.Sites {
		r.startAgent(i, 0)
		r.openSocket(clusterOf(i))
	}
	for range 10 {
		for i := range r.world.Sites {
			r.requireDial(clusterOf(i))
		}
	}
}

func TestKilledAgentReturnsWithItsIdentity(t *testing.T) {
	t.Parallel()
	r := newRig(t, "killed", 1, 1)
	r.startHub()
	agent := r.startAgent(0, 0)
	r.openSocket("c1")
	r.requireDial("c1")
	before := r.agents("c1")
	if len(before) != 1 {
		t.Fatalf("status has %d agents, want 1", len(before))
	}

	if err := agent.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-agent.process.Done()
	r.waitConnected("c1", 0, reconnectWithin)
	if last := r.agents("c1")[0].LastDisconnect; last == nil || strings.Contains(last.Reason, "no byte came for ") {
		t.Errorf("the hub noticed the end of the connection by silence alone: %+v", last)
	}
	_, _, _, err := r.dial("c1", 5*time.Second)
	var refused *refusal
	if !errors.As(err, &refused) || refused.code != "no_agent" {
		t.Errorf("a dial without agent: %v, want a refusal with no_agent", err)
	} else if !strings.Contains(refused.body, "c1") {
		t.Errorf("the refusal does not name the cluster: %q", refused.body)
	}

	r.start(agent) // the same line: its token is used up
	took := r.eventually("a dial works again", reconnectWithin, agent, func() error {
		conn, _, _, err := r.dial("c1", 5*time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
	t.Logf("dials work %v after the restart", took.Round(time.Millisecond))
	if after := r.agents("c1"); len(after) != 1 || after[0].ID != before[0].ID {
		t.Errorf("agents after the restart: %+v, want the one with id %s", after, before[0].ID)
	}
}

func TestKilledHubGetsItsAgentsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, "hubkill", 2, 1)
	r.startHub()
	var before []string
	for i := range r.world.Sites {
		r.startAgent(i, 0)
		r.openSocket(clusterOf(i))
		r.requireDial(clusterOf(i))
		before = append(before, r.agents(clusterOf(i))[0].ID)
	}
	if err := r.hub.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.hub.process.Done()
	r.startHub()
	for i := range r.world.Sites {
		took := r.waitConnected(clusterOf(i), 1, reconnectWithin)
		t.Logf("the agent of %s is back after %v", clusterOf(i), took.Round(time.Millisecond))
		after := r.agents(clusterOf(i))
		if len(after) != 1 || after[0].ID != before[i] {
			t.Errorf("agents of %s after the hub's restart: %+v, want the one with id %s", clusterOf(i), after, before[i])
		}
		// The socket was asked for by a verb before: the hub remembers it.
		r.requireDial(clusterOf(i))
	}
}

// noticeIdle has time for reading status, and for a busy machine.
const noticeIdle = limit.DeadIdle + 15*time.Second

// requireLive checks that the agent which is away was given up as one whose streams are live: by the silence that the
// hub has counted, since how long this test waits depends on the machine.
func (r *rig) requireLive(cluster string) {
	r.t.Helper()
	for _, a := range r.agents(cluster) {
		if a.LastDisconnect == nil {
			continue
		}
		_, text, _ := strings.Cut(a.LastDisconnect.Reason, "no byte came for ")
		silent, err := time.ParseDuration(text)
		if err != nil || silent < limit.DeadLive || silent > limit.DeadIdle/2 {
			r.t.Errorf("the agent was given up as %q, want after a silence of %v to %v", a.LastDisconnect.Reason,
				limit.DeadLive, limit.DeadIdle/2)
		}
		return
	}
	r.t.Error("no agent was given up")
}

func TestPartitionWithALiveStreamIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t, "cutlive", 1, 1)
	r.startHub()
	r.startAgent(0, 0)
	r.openSocket("c1")
	conn, reader, _, err := r.dial("c1", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	uplink := r.world.Sites[0].Uplink
	if err := uplink.On(); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	r.waitConnected("c1", 0, reconnectWithin)
	t.Logf("noticed after %v", time.Since(cut).Round(time.Millisecond))
	requireDropped(t, uplink)
	if err := conn.SetReadDeadline(time.Now().Add(startWithin)); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stream's client reads %v, want to be told that it ended", err)
	}
	r.requireLive("c1")

	if err := uplink.Off(); err != nil {
		t.Fatal(err)
	}
	took := r.waitConnected("c1", 1, reconnectWithin)
	t.Logf("back %v after the partition ended", took.Round(time.Millisecond))
	r.requireDial("c1")
}

func TestPartitionOfAnIdleLinkIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t, "cutidle", 1, 1)
	r.startHub()
	r.startAgent(0, 0)
	uplink := r.world.Sites[0].Uplink
	if err := uplink.On(); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	r.waitConnected("c1", 0, noticeIdle)
	t.Logf("noticed after %v", time.Since(cut).Round(time.Millisecond))
	requireDropped(t, uplink)
	if err := uplink.Off(); err != nil {
		t.Fatal(err)
	}
	r.waitConnected("c1", 1, reconnectWithin)
}

func TestDialOverACutIdleLinkFailsSoon(t *testing.T) {
	t.Parallel()
	r := newRig(t, "cutdial", 1, 1)
	r.startHub()
	r.startAgent(0, 0)
	r.openSocket("c1")
	if err := r.world.Sites[0].Uplink.On(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, _, _, err := r.dial("c1", limit.DeadIdle/2) // long before an idle link is given up by itself
	took := time.Since(begin)
	var refused *refusal
	if !errors.As(err, &refused) {
		t.Fatalf("after %v: %v, want a refusal", took, err)
	}
	t.Logf("refused after %v: %v", took.Round(time.Millisecond), err)
	r.waitConnected("c1", 0, reconnectWithin)
	r.requireLive("c1")
}

func requireDropped(t *testing.T, f *lab.Filter) {
	t.Helper()
	if n, err := f.Packets(); err != nil || n == 0 {
		t.Errorf("the partition dropped %d packets (%v): it cut nothing", n, err)
	}
}

func TestLosingOneOfThreeAgentsFailsNoDial(t *testing.T) {
	t.Parallel()
	r := newRig(t, "failover", 1, 3)
	r.startHub()
	for i := range 3 {
		r.startAgent(0, i)
	}
	r.waitConnected("c1", 3, startWithin)
	r.openSocket("c1")

	// Dials all the time, several at once, until told to stop.
	var dials, slowest, cutAt atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				begin := time.Now()
				conn, reader, _, err := r.dial("c1", 10*time.Second)
				var broken *brokenOff
				if errors.As(err, &broken) && begin.UnixNano() <= cutAt.Load() {
					continue // answered before the link was cut, and lost with it like every stream
				}
				if err != nil {
					t.Errorf("dial %d failed after %v: %v", dials.Load(), time.Since(begin).Round(time.Millisecond), err)
					return
				}
				if took := int64(time.Since(begin)); took > slowest.Load() {
					slowest.Store(took)
				}
				dials.Add(1)
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
				_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = io.Copy(io.Discard, reader)
				conn.Close()
			}
		}()
	}
	r.eventually("some dials are done", startWithin, nil, func() error {
		if dials.Load() < 50 && !t.Failed() {
			return errors.New("not yet")
		}
		return nil
	})
	cut := r.world.Sites[0].Gateway.Partition("agent1")
	if err := cut.On(); err != nil {
		t.Fatal(err)
	}
	cutAt.Store(time.Now().UnixNano())
	r.waitConnected("c1", 2, reconnectWithin)
	r.requireLive("c1")
	atNotice := dials.Load()
	r.eventually("dials go on", startWithin, nil, func() error {
		if dials.Load() < atNotice+50 && !t.Failed() {
			return errors.New("not yet")
		}
		return nil
	})
	requireDropped(t, cut)
	if err := cut.Off(); err != nil {
		t.Fatal(err)
	}
	r.waitConnected("c1", 3, reconnectWithin)
	close(stop)
	wg.Wait()
	t.Logf("%d dials, the slowest took %v", dials.Load(), time.Duration(slowest.Load()).Round(time.Millisecond))
}

// Other users of the machine cannot read what the hub keeps.
func TestStateIsPrivate(t *testing.T) {
	t.Parallel()
	r := newRig(t, "private", 1, 1)
	r.startHub()
	r.startAgent(0, 0)
	err := filepath.Walk(r.dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		public := strings.HasSuffix(path, ".crt") // certificates are no secret
		inState := strings.HasPrefix(path, filepath.Join(r.dir, "hub")) || strings.HasPrefix(path, filepath.Join(r.dir, "agent-"))
		if inState && info.Mode().IsRegular() && !public && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", strings.TrimPrefix(path, r.dir), info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(r.dir, "run", "admin")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the admin socket's directory: %v, %v; want mode 0700", info, err)
	}
}
