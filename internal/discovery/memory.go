// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// The files of a memory store.
const (
	snapshotName = "members"         // the last snapshot
	oldName      = "members.old"     // the one before
	newName      = "members.new"     // one that is being written
	damagedName  = "members.damaged" // one that could not be read, for whoever wants to look
	endedName    = "members.ended"   // there while nothing has happened since the last snapshot
	lockName     = "members.lock"
)

// MemoryConfig is what a memory store needs. A time of 0 is that of package limit.
type MemoryConfig struct {
	Board    *Board
	Dir      string // of the snapshot
	Settle   time.Duration
	Await    bool // wait for Settle also where there was no state at all
	Snapshot time.Duration
	Log      *slog.Logger

	disk disk // of tests; nil: Dir
}

// Memory is a Store in memory, with a snapshot from time to time. A crash loses
// what came after the last one; members push again within their lease, and until
// it has settled the store reports that it cannot know which members are gone.
type Memory struct {
	cfg   MemoryConfig
	disk  disk
	held  *os.File // nil in tests
	fresh bool     // there was no state at all, and no member can be missing
	whole bool     // nothing can have been taken since the snapshot that was read
	ran   atomic.Bool

	saving sync.Mutex // one snapshot at a time
	saved  uint64     // edition of the board in the last snapshot

	mu    sync.Mutex // of what follows
	state StoreState
	began time.Time // without all of the state; zero: with it
}

// OpenMemory reads the snapshot of a folder onto a board. Close must follow.
func OpenMemory(cfg MemoryConfig) (*Memory, error) {
	if cfg.Settle == 0 {
		cfg.Settle = limit.DiscoverySettle
	}
	if cfg.Snapshot == 0 {
		cfg.Snapshot = discoverySnapshot
	}
	m := &Memory{cfg: cfg, disk: cfg.disk, state: StoreState{Kind: "memory"}}
	if m.disk == nil {
		held, err := hold(cfg.Dir)
		if err != nil {
			return nil, err
		}
		m.disk, m.held = folder(cfg.Dir), held
	}
	whole, err := m.load()
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.saved, m.whole = cfg.Board.edition.Load(), whole
	if !whole {
		m.began, m.saved = time.Now(), math.MaxUint64 // what is known now is not on the disk as it should be
	}
	return m, nil
}

// Close lets go of the folder. Run, which writes the last snapshot, has returned; or
// it never began, because something else of the start failed: then the folder is as
// it was found, a clean end included.
func (m *Memory) Close() error {
	if m.whole && !m.ran.Load() {
		m.end()
	}
	if m.held == nil {
		return nil
	}
	return m.held.Close()
}

// load puts the newest readable snapshot onto the board. whole says that nothing
// can have been taken since it was written.
func (m *Memory) load() (whole bool, err error) {
	end, err := m.disk.Open(endedName)
	if err == nil {
		err = end.Close()
	}
	whole = err == nil
	first, second := m.read(snapshotName), error(nil)
	if first != nil {
		second = m.read(oldName)
		if err := m.refusal(first, second); err != nil {
			return false, err
		}
	}
	m.fresh = !m.cfg.Await && !whole && errors.Is(first, fs.ErrNotExist) && errors.Is(second, fs.ErrNotExist) &&
		m.missing(damagedName) && m.missing(newName)
	// From here on things happen. That the mark is gone is certain before the first does.
	if err := m.disk.Remove(endedName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, m.unusable(err)
	}
	if first != nil && !errors.Is(first, fs.ErrNotExist) {
		// Out of the way: it would become the one before, in the place of a good one.
		if err := m.disk.Rename(snapshotName, damagedName); err != nil {
			return false, m.unusable(err)
		}
	}
	if err := m.disk.Sync(); err != nil {
		return false, m.unusable(err)
	}
	log := m.cfg.Log.With("dir", m.cfg.Dir)
	switch {
	case first == nil && whole:
		return true, nil
	case m.fresh:
		return false, nil
	case first == nil:
		log.Warn("the service did not end in order: members newer than its last snapshot are awaited before first answers",
			"settle", m.cfg.Settle)
	case second == nil && errors.Is(first, fs.ErrNotExist):
		log.Warn("the last snapshot of members is missing; the one before it is used")
	case second == nil:
		log.Error("the last snapshot of members is damaged and put aside; the one before it is used", "file", damagedName,
			"error", first)
	case errors.Is(first, fs.ErrNotExist) && errors.Is(second, fs.ErrNotExist):
		log.Info("there is no snapshot of members yet; members are awaited", "settle", m.cfg.Settle)
	default:
		log.Error("no snapshot of members can be read: the service begins without its state, and awaits members",
			"settle", m.cfg.Settle,
			"error", first, "before", second)
	}
	return false, nil
}

// missing reports whether there certainly is no such file.
func (m *Memory) missing(name string) bool {
	f, err := m.disk.Open(name)
	if err == nil {
		err = f.Close()
	}
	return errors.Is(err, fs.ErrNotExist)
}

// read puts one snapshot onto the board if it is sound to its end.
func (m *Memory) read(name string) error {
	if err := m.each(name, func(kept) {}); err != nil {
		return err
	}
	now := time.Now()
	return m.each(name, func(k kept) { m.cfg.Board.Follow(k.place, k.by, k.at(now)) })
}

func (m *Memory) each(name string, fn func(kept)) error {
	f, err := m.disk.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(readSnapshot(f, fn), f.Close())
}

// refusal is the fault of a folder that must be left as it is: one of a newer
// release, one whose disk does not answer, or one that holds a foreign file. A file with
// another beginning is a damaged one of ours if the one before it is ours.
func (m *Memory) refusal(first, second error) error {
	for _, err := range []error{first, second} {
		var newer newerError
		var disk *fs.PathError
		switch {
		case errors.As(err, &newer):
			return fault.Newf(fault.CodeStateVersion, "the snapshot of members in %s has format %d", m.cfg.Dir, uint32(newer)).
				Whyf("this release reads up to format %d", snapshotFormat).
				Hint("run the newer release, or choose another state directory")
		case errors.As(err, &disk) && !errors.Is(err, fs.ErrNotExist):
			return m.unusable(err)
		}
	}
	ours := second != nil && !errors.Is(second, fs.ErrNotExist) && !errors.Is(second, errForeign)
	if errors.Is(first, errForeign) && second != nil && !ours ||
		errors.Is(second, errForeign) && errors.Is(first, fs.ErrNotExist) {
		return fault.New(fault.CodeStoreForeign, "the file "+snapshotName+" in "+m.cfg.Dir+" is not ours").
			Because(errForeign).
			Hint("choose another state directory, or move the file away")
	}
	return nil
}

func (m *Memory) unusable(err error) error {
	return fault.New(fault.CodeStateAccess, "the state directory "+m.cfg.Dir+" cannot be used").Because(err).
		Hint("see to the disk and the permissions of the directory, or choose another with --state-dir (stateDir)")
}

// Update puts an update onto the board.
func (m *Memory) Update(ctx context.Context, p Place, u roster.Update) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	return m.cfg.Board.Apply(p, u.From, func(was roster.Lease) (roster.Lease, roster.Change, error) {
		if was.Stale(u) {
			return was, roster.Unchanged, Stale(was.Version, u.Version)
		}
		is, change := was.Put(now, u)
		return is, change, nil
	})
}

// Delete takes a member away at once.
func (m *Memory) Delete(ctx context.Context, p Place) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.cfg.Board.Apply(p, netip.Addr{}, func(was roster.Lease) (roster.Lease, roster.Change, error) {
		if err := Removable(was); err != nil || !was.Exists() {
			return was, roster.Unchanged, err
		}
		return roster.Lease{}, roster.Gone, nil
	})
}

// Run sweeps and saves until ctx ends, and saves once more.
func (m *Memory) Run(ctx context.Context) error {
	m.ran.Store(true)
	if m.fresh {
		m.begin()
	}
	g := run.NewGroup(ctx)
	g.Go("sweep", func(ctx context.Context) error {
		return run.Every(ctx, limit.DiscoverySweep, func() { m.cfg.Board.Expire(time.Now()) })
	})
	g.Go("save", func(ctx context.Context) error { return run.Every(ctx, m.cfg.Snapshot, func() { m.save() }) })
	err := g.Wait()
	if m.save() {
		m.end()
	}
	return err
}

// begin writes an empty snapshot for a service that had none. If this run
// does not end in order, it shows the next start that members may have come.
func (m *Memory) begin() {
	if !m.save() {
		m.cfg.Log.Warn("members are awaited, as after a crash", "settle", m.cfg.Settle)
		return
	}
	m.mu.Lock()
	m.began = time.Time{}
	m.mu.Unlock()
	m.cfg.Log.Info("there was no state of members yet: the service begins with it", "dir", m.cfg.Dir)
}

// save writes a snapshot, unless the last one says the same, and says whether the
// disk has all that is known. While there are members it never does: less is left
// of their leases, and an old snapshot would make them longer. A disk that is full or away makes the
// store degraded until one is written.
func (m *Memory) save() bool {
	m.saving.Lock()
	defer m.saving.Unlock()
	edition := m.cfg.Board.edition.Load()
	m.mu.Lock()
	sound := m.state.Degraded == ""
	m.mu.Unlock()
	clusters, _, _ := m.cfg.Board.Counts()
	if edition == m.saved && sound && clusters == 0 {
		return true
	}
	err := m.write()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if sound {
			m.state.Since = time.Now()
		}
		m.state.Degraded = "the last snapshot could not be written: " + err.Error()
		m.cfg.Log.Error("the snapshot of members cannot be written; the service continues and tries again", "dir", m.cfg.Dir,
			"error", err, "again", m.cfg.Snapshot)
		return false
	}
	if !sound {
		m.cfg.Log.Info("the snapshot of members is written again", "dir", m.cfg.Dir)
	}
	m.saved, m.state.Saved, m.state.Degraded, m.state.Since = edition, time.Now(), "", time.Time{}
	return true
}

// write writes a snapshot beside the last one, and puts it in its place once it is
// on the disk. At every moment the folder has a whole one: the new, the last, or
// the last under the name of the one before.
func (m *Memory) write() (err error) {
	f, err := m.disk.Create(newName)
	if err != nil {
		return err
	}
	if err := errors.Join(m.writeTo(f), f.Close()); err != nil {
		m.disk.Remove(newName) // gives back the room that it took of a full disk
		return err
	}
	if err := m.disk.Rename(snapshotName, oldName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.disk.Rename(newName, snapshotName); err != nil {
		return err
	}
	return m.disk.Sync()
}

func (m *Memory) writeTo(f diskFile) error {
	w := newSnapshotWriter(f)
	now := time.Now()
	m.cfg.Board.All(func(p Place, l roster.Lease, by netip.Addr) {
		if k, ok := keep(p, l, by, now); ok {
			w.add(k)
		}
	})
	if err := w.Close(); err != nil {
		return err
	}
	return f.Sync()
}

// end marks the snapshot as the last word. Without the mark the next start waits
// for members, which harms nobody.
func (m *Memory) end() {
	f, err := m.disk.Create(endedName)
	if err == nil {
		err = errors.Join(f.Close(), m.disk.Sync())
	}
	if err != nil {
		m.cfg.Log.Warn("the end of the service could not be marked; the next start awaits members", "dir", m.cfg.Dir,
			"error", err)
	}
}

// State says how the store is.
func (m *Memory) State() StoreState {
	m.mu.Lock()
	s, began := m.state, m.began
	m.mu.Unlock()
	s.Settled = true
	if until := began.Add(m.cfg.Settle); !began.IsZero() && time.Now().Before(until) {
		s.Settled, s.Settles = false, until
	}
	return s
}
