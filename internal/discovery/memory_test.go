// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running opens a memory store and runs it.
func running(t testing.TB, cfg MemoryConfig) (*Memory, func()) {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m, err := OpenMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background())
	g.Go("store", m.Run)
	return m, func() {
		g.Stop()
		if err := errors.Join(g.Wait(), m.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestAnotherProcessIsKeptOut(t *testing.T) {
	cfg := MemoryConfig{Board: NewBoard(Bounds{}), Dir: filepath.Join(t.TempDir(), "state"), Log: slog.New(slog.DiscardHandler)}
	m, err := OpenMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(cfg.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	_, err = OpenMemory(cfg)
	wantFault(t, err, fault.CodeStateBusy)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m, err = OpenMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAPipeIsNoSnapshot: nobody would ever write into it, and the start would not end.
func TestAPipeIsNoSnapshot(t *testing.T) {
	cfg := MemoryConfig{Board: NewBoard(Bounds{}), Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	if err := syscall.Mkfifo(filepath.Join(cfg.Dir, snapshotName), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenMemory(cfg)
	wantFault(t, err, fault.CodeStateAccess)
}

func quiet(d disk, b *Board) MemoryConfig {
	return MemoryConfig{Board: b, Dir: "state", Log: slog.New(slog.DiscardHandler), disk: d}
}

func say(t testing.TB, m *Memory, member, data string) {
	t.Helper()
	if err := m.Update(context.Background(), sidero(member), roster.Update{Data: []byte(data), TTL: long}); err != nil {
		t.Fatal(err)
	}
}

func content(b *Board) string {
	var out []string
	b.All(func(p Place, l roster.Lease, _ netip.Addr) { out = append(out, fmt.Sprintf("%s=%s", p.Member, l.Data)) })
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestACrashAtAnyStepLeavesTheLastOrTheOneBefore stops the machine at each write,
// sync, rename and removal of three snapshots and an orderly end, and opens every
// disk that this may leave.
func TestACrashAtAnyStepLeavesTheLastOrTheOneBefore(t *testing.T) {
	opened, ended := 0, false
	for stop := 0; !ended; stop++ {
		d := newDisk()
		m, err := OpenMemory(quiet(d, NewBoard(Bounds{})))
		if err != nil {
			t.Fatal(err)
		}
		d.stop = d.step + stop
		saved, tried := "", ""
		for _, version := range []string{"1", "2", "3"} {
			say(t, m, "a", version)
			say(t, m, "only in "+version, strings.Repeat(version, 1000))
			if tried = content(m.cfg.Board); !m.save() {
				break
			}
			saved = tried
		}
		if ended = saved == tried; ended {
			m.end()
			ended = d.step <= d.stop
		}
		for i, left := range d.after() {
			b := NewBoard(Bounds{})
			again, err := OpenMemory(quiet(left, b))
			if err != nil {
				t.Fatalf("step %d, disk %d: %v", stop, i, err)
			}
			if got := content(b); got != saved && got != tried {
				t.Fatalf("step %d, disk %d: %.80q, want %.80q or %.80q", stop, i, got, saved, tried)
			}
			if settled := again.State().Settled; settled && content(b) != tried {
				t.Fatalf("step %d, disk %d: settled without what was taken", stop, i)
			}
			say(t, again, "b", "after")
			if want := content(b); !again.save() {
				t.Fatalf("step %d, disk %d: no snapshot after the crash", stop, i)
			} else if third := NewBoard(Bounds{}); true {
				if _, err := OpenMemory(quiet(left, third)); err != nil || content(third) != want {
					t.Fatalf("step %d, disk %d: %v, %.80q", stop, i, err, content(third))
				}
			}
			opened++
		}
	}
	if opened < 8*15 {
		t.Errorf("only %d disks were opened", opened)
	}
}

// saved is a disk with two snapshots and the mark of an orderly end.
func saved(t testing.TB) *testDisk {
	t.Helper()
	d := newDisk()
	m, err := OpenMemory(quiet(d, NewBoard(Bounds{})))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"before", "last"} {
		say(t, m, "a", version)
		if !m.save() {
			t.Fatal("not saved")
		}
	}
	m.end()
	return d
}

// TestEveryDamageIsSeen cuts the last snapshot at each byte and flips each of its
// bits: the one before is used, and without that nothing, and both are said.
func TestEveryDamageIsSeen(t *testing.T) {
	whole := saved(t).files[snapshotName].content
	try := func(what string, damaged []byte, old bool) {
		t.Helper()
		d := saved(t)
		d.files[snapshotName] = &inode{content: damaged}
		want := "a=before"
		if !old {
			d.files[oldName] = &inode{content: d.files[oldName].content[:headerLength+3]}
			want = ""
		}
		var log bytes.Buffer
		cfg := quiet(d, NewBoard(Bounds{}))
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		m, err := OpenMemory(cfg)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := content(m.cfg.Board); got != want || m.State().Settled || !strings.Contains(log.String(), "level=ERROR") {
			t.Fatalf("%s: %q, %+v, %s", what, got, m.State(), &log)
		}
		if d.files[damagedName] == nil || string(d.files[damagedName].content) != string(damaged) {
			t.Fatalf("%s: the damaged file is not kept", what)
		}
		if _, clusters, _ := m.cfg.Board.Counts(); old == (clusters == 0) {
			t.Fatalf("%s: %d", what, clusters)
		}
	}
	for n := range whole {
		try(fmt.Sprintf("cut to %d", n), whole[:n], n%2 == 0)
	}
	for n := range 8 * len(whole) {
		damaged := bytes.Clone(whole)
		damaged[n/8] ^= 1 << (n % 8)
		try(fmt.Sprintf("bit %d", n), damaged, n%2 == 0 || n/8 < len(snapshotMagic))
	}
	try("more at the end", append(bytes.Clone(whole), 0), true)
	record := whole[headerLength : len(whole)-frameLength-trailerLength]
	try("a record twice", slices.Concat(whole[:headerLength], record, record, whole[headerLength+len(record):]), true)
	try("no record", slices.Concat(whole[:headerLength], whole[headerLength+len(record):]), true)
	try("nothing", nil, true)
}

func TestFilesThatAreLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		last, before []byte
		want         fault.Code
	}{
		"a newer format":          {append(formatHeader(2), "what is to come"...), nil, fault.CodeStateVersion},
		"a newer format before":   {[]byte(snapshotMagic), formatHeader(7), fault.CodeStateVersion},
		"somebody else's":         {[]byte("#!/bin/sh\necho hello\n"), nil, fault.CodeStoreForeign},
		"somebody else's, two":    {[]byte("one"), []byte("two"), fault.CodeStoreForeign},
		"somebody else's as .old": {nil, []byte("two"), fault.CodeStoreForeign},
		"nothing at all in it":    {make([]byte, 0), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			d.files[endedName] = &inode{}
			if c.last != nil {
				d.files[snapshotName] = &inode{content: c.last}
			}
			if c.before != nil {
				d.files[oldName] = &inode{content: c.before}
			}
			files := maps.Clone(d.files)
			b := NewBoard(Bounds{})
			_, err := OpenMemory(quiet(d, b))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantFault(t, err, c.want)
			if !maps.Equal(files, d.files) || content(b) != "" || d.step != 0 {
				t.Error("something was changed")
			}
		})
	}
}

// TestAFullDiskDegrades: the service goes on, says so, tries again, and the last
// snapshot stays.
func TestAFullDiskDegrades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := saved(t)
		m, stop := running(t, quiet(d, NewBoard(Bounds{})))
		d.full.Store(true)
		say(t, m, "b", "while it is full")
		time.Sleep(discoverySnapshot + time.Second)
		synctest.Wait()
		since := m.State().Since
		if s := m.State(); !strings.Contains(s.Degraded, "no space left") || since.IsZero() || !s.Saved.IsZero() {
			t.Errorf("on a full disk: %+v", s)
		}
		if d.copied().files[newName] != nil {
			t.Error("what was begun still takes room")
		}
		time.Sleep(discoverySnapshot)
		synctest.Wait()
		if s := m.State(); !s.Since.Equal(since) {
			t.Errorf("degraded since %v, then since %v", since, s.Since)
		}
		other := NewBoard(Bounds{})
		if _, err := OpenMemory(quiet(d.copied(), other)); err != nil || content(other) != "a=last" {
			t.Errorf("%v, %q", err, content(other))
		}
		say(t, m, "c", "still taken")
		d.full.Store(false)
		time.Sleep(discoverySnapshot)
		synctest.Wait()
		if s := m.State(); s.Degraded != "" || !s.Since.IsZero() || s.Saved.IsZero() {
			t.Errorf("with room again: %+v", s)
		}
		stop()
	})
}

// TestSettling: without its state, or with one from before a crash, a store knows
// after a while only who is not there.
// begun is a disk as a first start leaves it.
func begun(t *testing.T) *testDisk {
	d := newDisk()
	m, stop := running(t, quiet(d, NewBoard(Bounds{})))
	defer stop()
	runtest.Eventually(t, "it is settled", func() bool { return m.State().Settled })
	return d.copied()
}

func TestSettling(t *testing.T) {
	for name, c := range map[string]struct {
		disk func(t *testing.T) *testDisk
		want bool
	}{
		"nothing": {func(*testing.T) *testDisk { return newDisk() }, true},
		"nothing, and a start that failed": {func(t *testing.T) *testDisk {
			d := newDisk()
			m, err := OpenMemory(quiet(d, NewBoard(Bounds{})))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			return d
		}, true},
		"nothing, and a crash before the first snapshot": {func(t *testing.T) *testDisk {
			return begun(t).after()[0] // what was synced
		}, false},
		"nothing, and no room on the disk": {func(t *testing.T) *testDisk { d := newDisk(); d.full.Store(true); return d }, false},
		"a damaged one alone":              {func(t *testing.T) *testDisk { d := newDisk(); d.files[damagedName] = &inode{}; return d }, false},
		"the mark of an end alone":         {func(t *testing.T) *testDisk { d := newDisk(); d.files[endedName] = &inode{}; return d }, false},
		"an end":                           {func(t *testing.T) *testDisk { return saved(t) }, true},
		"a crash":                          {func(t *testing.T) *testDisk { d := saved(t); delete(d.files, endedName); return d }, false},
		"an end, and a start that failed": {func(t *testing.T) *testDisk {
			d := saved(t)
			m, err := OpenMemory(quiet(d, NewBoard(Bounds{})))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil { // as for bad TLS files: it never ran
				t.Fatal(err)
			}
			return d
		}, true},
		"a crash, and a start that failed": {func(t *testing.T) *testDisk {
			d := saved(t)
			delete(d.files, endedName)
			m, err := OpenMemory(quiet(d, NewBoard(Bounds{})))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			return d
		}, false},
		"an empty end": {func(t *testing.T) *testDisk {
			d := newDisk()
			_, stop := running(t, quiet(d, NewBoard(Bounds{})))
			stop()
			return d
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, said := quiet(c.disk(t), NewBoard(Bounds{})), new(bytes.Buffer)
				cfg.Log = slog.New(slog.NewTextHandler(said, nil))
				m, stop := running(t, cfg)
				defer stop()
				synctest.Wait() // an empty snapshot is written first
				if got := strings.Contains(said.String(), "awaited"); got == c.want {
					t.Errorf("the log says %q: nobody knows why first answers are held back", said)
				}
				s := m.State()
				if s.Settled != c.want || s.Settles.IsZero() != c.want {
					t.Fatalf("%+v", s)
				}
				time.Sleep(limit.DiscoverySettle - time.Nanosecond)
				if got := m.State().Settled; got != c.want {
					t.Errorf("settled %v before its time", got)
				}
				time.Sleep(time.Nanosecond)
				if !m.State().Settled {
					t.Error("not settled")
				}
			})
		})
	}
}
