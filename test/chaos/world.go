// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
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

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

// cluster is one tenant: its agent, its sockets, its target.
type cluster struct {
	number int
	name   string
	socket string // for CONNECT
	grpc   string // for konnectivity
	target *target
	agent  *lab.Process
	health string
}

// world is a hub with its clusters, and all that is known about them.
type world struct {
	*driver
	lab      *lab.Lab
	dir      string
	disk     string // where the hub's state and records are; a small disk if we may
	mounted  bool
	host     string // loopback address of this run
	config   string
	hub      *lab.Process
	log      lockedBuffer
	clusters []*cluster
	history  *history
	attacks  int // connections of hostile peers
	files    []*os.File

	mu    sync.Mutex
	spans []span
	peak  int64 // RSS of the hub
	now   int64 // since the last fault
	kills int
	slow  time.Duration // the longest time until all clusters were served again
	slowN string
}

// lockedBuffer keeps the end of a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > 1<<20 {
		l.b.Next(l.b.Len() / 2)
	}
	return l.b.Write(p)
}

func (w *world) lastWords() string {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	s := w.log.b.String()
	return s[max(0, len(s)-4000):]
}

const diskSize = 96 << 20

func newWorld(ctx context.Context, d *driver, l *lab.Lab) (w *world, err error) {
	w = &world{driver: d, lab: l, history: newHistory()}
	if w.dir, err = l.Dir(); err != nil {
		return w, err
	}
	if w.program, err = filepath.Abs(d.program); err != nil {
		return w, err
	}
	r := rand.New(rand.NewPCG(d.seed, uint64(os.Getpid())))
	w.host = fmt.Sprintf("127.%d.%d.%d", 64+r.IntN(60), r.IntN(256), 1+r.IntN(250)) // below those of the dials
	w.disk = filepath.Join(w.dir, "disk")
	if err := os.Mkdir(w.disk, 0o700); err != nil {
		return w, err
	}
	err = syscall.Mount("chaos", w.disk, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, fmt.Sprintf("size=%d,mode=0700", diskSize))
	w.mounted = err == nil
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.writeConfig(); err != nil {
		return w, err
	}
	if err := w.startHub(ctx); err != nil {
		return w, err
	}
	for i := range 3 {
		if err := w.addCluster(ctx, i); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *world) writeConfig() error {
	w.config = filepath.Join(w.dir, "hub.yaml")
	var clusters strings.Builder
	for i := range 3 {
		fmt.Fprintf(&clusters, "  - {name: c%d, sockets: [{protocol: connect}, {protocol: konnectivity}]}\n", i)
	}
	return os.WriteFile(w.config, fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: HubConfig
stateDir: %s/hub
runDir: %s/run
listen: %s:8443
advertise: ["%s:8443"]
admin: {listen: "%s:8444"}
certificates: {agentLife: %v}
audit: {path: %q, maxSize: 4MiB, keep: 1000, compress: true}
drainTimeout: 2s
clusters:
%s`, w.disk, w.dir, w.host, w.host, w.host, w.pace.life, w.auditPath(), clusters.String()), 0o600)
}

func (w *world) auditPath() string { return filepath.Join(w.disk, "audit.jsonl") }

// close ends what was started. The lab ends the processes.
func (w *world) close() (err error) {
	for _, c := range w.clusters {
		if c.agent != nil {
			c.agent.Kill()
		}
		if c.target != nil {
			c.target.close()
		}
	}
	if w.hub != nil {
		w.hub.Kill()
	}
	for _, f := range w.files {
		err = errors.Join(err, f.Close())
	}
	if w.mounted {
		w.mounted = false
		err = errors.Join(err, syscall.Unmount(w.disk, syscall.MNT_DETACH))
	}
	return err
}

func (w *world) startHub(ctx context.Context) (err error) {
	cmd := exec.Command(w.program, "hub", "--config", w.config)
	if err := w.keepLog(cmd, "hub", &w.log); err != nil {
		return err
	}
	p, err := w.lab.Here().Start(cmd)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.hub = p
	w.mu.Unlock()
	return w.until(ctx, "the hub is ready", func() bool { return w.ready("https://" + w.host + ":8444/readyz") })
}

// keepLog sends what a process says to where it is asked for, and into a file if
// logs are kept.
func (w *world) keepLog(cmd *exec.Cmd, name string, to io.Writer) error {
	cmd.Stdout, cmd.Stderr = to, to
	if w.logs == "" {
		return nil
	}
	if err := os.MkdirAll(w.logs, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(w.logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	w.files = append(w.files, f)
	both := io.MultiWriter(to, f)
	cmd.Stdout, cmd.Stderr = both, both
	return nil
}

// until waits for what has to come.
func (w *world) until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !holds() {
		run.Wait(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: not within a minute: %w", what, ctx.Err())
		}
	}
	return nil
}

// ready asks a probe.
func (w *world) ready(url string) bool {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	res, err := client.Get(url)
	if err != nil {
		return false
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// tombolo runs a verb on the hub's admin socket.
func (w *world) tombolo(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Env = append(os.Environ(), "TOMBOLO_ADMIN_SOCKET="+filepath.Join(w.dir, "run/admin/hub.sock"))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %s", strings.Join(args, " "), bytes.TrimSpace(exit.Stderr))
	}
	return strings.TrimSpace(string(out)), err
}

func (w *world) addCluster(ctx context.Context, number int) error {
	c := &cluster{number: number, name: fmt.Sprintf("c%d", number), health: fmt.Sprintf("%s:%d", w.host, 8445+number)}
	w.clusters = append(w.clusters, c)
	c.socket = filepath.Join(w.dir, "run/clusters", c.name, "connect.sock")
	c.grpc = filepath.Join(w.dir, "run/clusters", c.name, "konnectivity.sock")
	var err error
	if c.target, err = startTarget(w.history, number); err != nil {
		return err
	}
	join, err := w.tombolo(ctx, "token", "create", "--cluster", c.name)
	if err != nil {
		return err
	}
	return w.startAgent(ctx, c, strings.TrimPrefix(join, "tombolo agent --join "))
}

// startAgent starts a cluster's agent; without a join line it knows its own.
func (w *world) startAgent(ctx context.Context, c *cluster, join string) (err error) {
	args := []string{"agent", "--state-dir", filepath.Join(w.dir, c.name), "--allow", "127.0.0.0/8", "--health-listen", c.health}
	if join != "" {
		args = append(args, "--join", join)
	}
	cmd := exec.Command(w.program, args...)
	if err := w.keepLog(cmd, c.name, io.Discard); err != nil {
		return err
	}
	if c.agent, err = w.lab.Here().Start(cmd); err != nil {
		return err
	}
	return w.until(ctx, "the agent of "+c.name+" is ready", func() bool { return w.ready("http://" + c.health + "/readyz") })
}

// watch looks at the hub's memory now and then.
func (w *world) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		pid := w.hub.Pid()
		w.mu.Unlock()
		if n, err := roles.Resident(pid); err == nil {
			w.mu.Lock()
			w.peak, w.now = max(w.peak, n), max(w.now, n)
			w.mu.Unlock()
		}
		run.Wait(ctx, 250*time.Millisecond)
	}
}
