// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

// solo is a meeting at one discovery service, which keeps its members in memory
// and in snapshots.
type solo struct {
	*meeting
	mu      sync.Mutex // of what guards look at
	service *lab.Process
	peaked  int64 // RSS of the service
	served  int64 // calls of hostile ones

	last, before time.Time // of the last snapshots that the service told of
}

// soloDisk is the size of the disk of the snapshots: room for a thousand members.
const soloDisk = 4 << 20

// mostSolo is the memory that one service may have under attack.
const mostSolo = 512 << 20

// mostSoloLeft are its descriptors with members and watchers and nobody else.
const mostSoloLeft = 100

// meet plays for a while with one service and checks what was seen.
func (d *driver) meet(ctx context.Context, l *lab.Lab) (err error) {
	s, err := d.newSolo(ctx, l)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	if err := s.play(ctx); err != nil {
		return fmt.Errorf("%w\nthe discovery service's last words:\n%s", err, s.lastWords())
	}
	left, err := s.leftovers(ctx)
	if err != nil {
		return err
	}
	s.line(line{name: s.title + ": memory of the service, at most", value: float64(s.peaked >> 20), target: mostSolo >> 20, unit: " MiB",
		note: fmt.Sprintf("%d hostile connections", s.attacks)})
	s.line(line{name: s.title + ": descriptors of the service when the attacks are over", value: float64(left), target: mostSoloLeft})
	s.line(line{name: s.title + ": hostile calls that it served", value: float64(s.served), target: 1, atLeast: true, note: "without any it was not attacked"})
	return nil
}

// leftovers is how many descriptors the service has when no hostile one calls any more.
func (s *solo) leftovers(ctx context.Context) (n int, err error) {
	werr := s.until(ctx, "the service lets go", func() bool {
		n, err = roles.Descriptors(s.service.Pid())
		return err != nil || n <= mostSoloLeft
	})
	if errors.Is(werr, context.Canceled) {
		return n, werr
	}
	return n, err // too many are a line that is short
}

func (d *driver) newSolo(ctx context.Context, l *lab.Lab) (s *solo, err error) {
	r := d.player(1)
	m, err := d.newMeeting(l, "one discovery service")
	s = &solo{meeting: m}
	if err != nil {
		return s, err
	}
	s.length, s.list = d.meeting, append(s.common(), s.own()...)
	s.door = func(int) string { return s.host + ":8466" }
	s.guards = append(s.guards, s.look)
	s.disk = filepath.Join(s.dir, "disk")
	if err := os.Mkdir(s.disk, 0o700); err != nil {
		return s, err
	}
	err = syscall.Mount("chaos", s.disk, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, fmt.Sprintf("size=%d,mode=0700", soloDisk))
	s.mounted = err == nil
	s.config = filepath.Join(s.dir, "discovery.yaml")
	if err := os.WriteFile(s.config, fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: DiscoveryConfig
stateDir: %[1]s/state
runDir: %[2]s/run
listen: "%[3]s:8466"
admin: {listen: "%[3]s:8467"}
tls: {self: true, hosts: [%[3]q]}
store: {memory: {snapshotInterval: 1s}}
rates: {perSecond: 2000, burst: 4000}
limits: {connectionsPerAddress: 200, watchesPerAddress: 100, clusters: 1000, bytes: 64MiB}
settle: %[4]v
drainTimeout: 500ms
`, s.disk, s.dir, s.host, s.settle()), 0o600); err != nil {
		return s, err
	}
	if err := s.start(ctx); err != nil {
		return s, err
	}
	return s, s.gather(r)
}

func (s *solo) start(ctx context.Context) error {
	cmd := exec.Command(s.program, "discovery", "--config", s.config)
	if err := s.keepLog(cmd, "discovery", &s.log); err != nil {
		return err
	}
	p, err := s.lab.Here().Start(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.service = p
	s.mu.Unlock()
	return s.serves(ctx, p, "the discovery service", func() bool { return s.ready("http://" + s.host + ":8467/readyz") })
}

func (s *solo) close() error {
	if s.service != nil {
		s.service.Kill()
		s.service.Wait()
	}
	return s.meeting.close()
}

// own are the mishaps of a service with a disk.
func (s *solo) own() []mishap {
	return []mishap{
		{name: "the service is killed", do: func(ctx context.Context, _ *rand.Rand) error { return s.kill(ctx, nil) }},
		{name: "the service is killed, and its last snapshot is torn", do: func(ctx context.Context, _ *rand.Rand) error {
			return s.kill(ctx, s.tear)
		}},
		{name: "the service restarts in order", do: func(ctx context.Context, _ *rand.Rand) error {
			s.chr.outage(false, time.Time{})
			if err := s.service.Stop(30 * time.Second); err != nil {
				return fmt.Errorf("it did not end in order: %w", err)
			}
			return s.start(ctx)
		}},
		{name: "the service stands still", do: func(ctx context.Context, _ *rand.Rand) error {
			return standStill(ctx, s.service, s.pace.fault)
		}},
		{name: "the disk is full", needs: s.noDisk, do: func(ctx context.Context, _ *rand.Rand) error { return s.full(ctx, nil) }},
		{name: "the disk is full, and the service is killed", needs: s.noDisk, do: func(ctx context.Context, _ *rand.Rand) error {
			return s.full(ctx, func() error { return s.kill(ctx, nil) })
		}},
		{name: "hostile unknown peers and members", do: func(ctx context.Context, _ *rand.Rand) error { return s.besiege(ctx) }},
	}
}

func (s *solo) noDisk() string {
	if !s.mounted {
		return "a disk of its own needs root"
	}
	return ""
}

// kill ends the service without a word, does what happens to its files meanwhile,
// and starts it again with its state.
func (s *solo) kill(ctx context.Context, meanwhile func() error) error {
	s.mu.Lock()
	saved := s.before
	if meanwhile != nil {
		saved, s.last, s.before = time.Time{}, time.Time{}, time.Time{}
	}
	s.mu.Unlock()
	s.chr.outage(true, saved)
	if err := signal(s.service, syscall.SIGKILL); err != nil {
		return err
	}
	s.service.Wait()
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return err
		}
	}
	return s.start(ctx)
}

func (s *solo) snapshot() string { return filepath.Join(s.disk, "state", "members") }

// tear leaves half of the last snapshot, as a disk does that lost a page.
func (s *solo) tear() error {
	info, err := os.Stat(s.snapshot())
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was killed while it was being replaced, or before the first
	}
	if err != nil {
		return err
	}
	return os.Truncate(s.snapshot(), info.Size()/2)
}

// full leaves no room for snapshots, does what happens meanwhile, and sees that
// the service says so, keeps the last snapshot as it is, and goes on saving when
// there is room.
func (s *solo) full(ctx context.Context, meanwhile func() error) error {
	empty, err := fillDisk(s.disk)
	if err != nil {
		return err
	}
	defer empty() // nothing, if it is done
	if err := s.until(ctx, "the full disk is told", s.degraded); err != nil {
		return err
	}
	kept, err := os.ReadFile(s.snapshot())
	if err != nil {
		return err
	}
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return err
		}
		if err := s.until(ctx, "the full disk is told after the start", s.degraded); err != nil {
			return err
		}
	}
	run.Wait(ctx, s.pace.fault)
	now, err := os.ReadFile(s.snapshot())
	if err != nil || !bytes.Equal(now, kept) || len(kept) == 0 {
		return fmt.Errorf("the last snapshot has %d bytes and had %d, or others, while the disk was full: %w", len(now), len(kept), err)
	}
	if err := empty(); err != nil {
		return err
	}
	return s.until(ctx, "snapshots are written again", func() bool {
		now, err := os.ReadFile(s.snapshot())
		return err == nil && !bytes.Equal(now, kept) && !s.degraded()
	})
}

// degraded says whether the service tells everywhere that it cannot save.
func (s *solo) degraded() bool {
	st, err := s.status()
	probe, perr := s.read("/readyz")
	metrics, merr := s.read("/metrics")
	return errors.Join(err, perr, merr) == nil && strings.Contains(st.Store.Degraded, "no space left") && !st.Store.Since.IsZero() &&
		strings.Contains(probe, "degraded: ") && strings.Contains(metrics, "tombolo_discovery_store_degraded 1\n")
}

func (s *solo) status() (st admin.DiscoveryStatus, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return st, admin.OverSocket(discovery.AdminSocket(filepath.Join(s.dir, "run"))).Call(ctx, http.MethodGet, "/v1/status", nil, &st)
}

// read asks the admin port.
func (s *solo) read(path string) (string, error) {
	return readPage("http://" + s.host + ":8467" + path)
}

func readPage(url string) (string, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// look keeps an eye on the memory of the service and on what it has saved: what
// was there when it told of one snapshot is in the next.
func (s *solo) look(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		p := s.service
		s.mu.Unlock()
		st, err := s.status()
		rss, rerr := roles.Resident(p.Pid())
		s.mu.Lock()
		if at := st.Store.Saved; err == nil && s.service == p && !at.IsZero() && at.After(s.last) {
			s.before, s.last = s.last, at
		}
		if rerr == nil {
			s.peaked = max(s.peaked, rss)
		}
		s.mu.Unlock()
		run.Wait(ctx, 100*time.Millisecond)
	}
}
