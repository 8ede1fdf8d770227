// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/tools"
	"github.com/tombolo-io/tombolo/test/lab"
)

// word is part of the names of what a rig makes.
const word = "kube"

// Options say what a rig is made of.
type Options struct {
	Minor    string       // Kubernetes minor version, for example "1.35"; empty means tools.Default
	Progress func(string) // gets a line per step; may be nil
}

// Rig is the world of the clusters: the public network, the hub and what the clusters share.
type Rig struct {
	ID  string // the name that everything outside Dir begins with
	Dir string // everything that the rig writes; its name is the ID

	progress func(string)
	repo     string
	bin      string // the Kubernetes programs
	tombolo  string // the program under test
	workload string // the program of the test pods
	images   string // docker archive with the test images
	lab      *lab.Lab
	wan      *lab.Host
	hubHost  *lab.Host
	hub      *Hub
	edges    []*Edge
	office   *lab.Host // once there is an edge

	mu       sync.Mutex
	clusters []*Cluster
	closed   bool
}

// New sweeps away what dead rigs left, builds what is missing and lays the public network. Close must be
// called, also after a failure of anything else; New itself leaves nothing behind when it fails.
func New(ctx context.Context, o Options) (*Rig, error) {
	if o.Minor == "" {
		o.Minor = tools.Default
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if err := checkHost(); err != nil {
		return nil, err
	}
	if err := Sweep(ctx, o.Progress); err != nil {
		return nil, fmt.Errorf("remove what an earlier rig left: %w", err)
	}
	repo, err := tools.Repo()
	if err != nil {
		return nil, err
	}
	r := &Rig{progress: o.Progress, repo: repo, tombolo: filepath.Join(repo, "bin/tombolo")}
	if r.bin, err = tools.Ensure(ctx, repo, o.Minor, o.Progress); err != nil {
		return nil, err
	}
	if r.lab, err = lab.New(word); err != nil {
		return nil, err
	}
	if r.Dir, err = r.lab.Dir(); err != nil {
		return nil, errors.Join(err, r.lab.Close())
	}
	r.ID = filepath.Base(r.Dir)
	if err := r.furnish(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// furnish makes the test images and the public network.
func (r *Rig) furnish(ctx context.Context) error {
	r.workload = filepath.Join(r.Dir, "workload")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", r.workload, "./test/kube/workload")
	build.Dir = r.repo
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the test workload: %w\n%s", err, text)
	}
	r.images = filepath.Join(r.Dir, "images.tar")
	if err := writeImages(r.images, r.workload); err != nil {
		return fmt.Errorf("make the test images: %w", err)
	}
	if err := r.layWan(ctx); err != nil {
		return fmt.Errorf("lay the public network: %w", err)
	}
	return nil
}

// Close takes everything down. Calling it again is harmless.
func (r *Rig) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	told := r.handOver() // before the nodes' disks go
	for _, c := range r.clusters {
		c.stop()
	}
	for _, e := range r.edges {
		e.proc.stop()
	}
	if r.hub != nil {
		_ = r.hub.proc.Stop(5 * time.Second) // how it ends is not what is tested here
	}
	return errors.Join(told, remove(r.ID), r.lab.Close())
}

// handOver gives what hub, agents and kube-apiservers have logged to the suite,
// which looks for secrets in it.
func (r *Rig) handOver() error {
	var told []error
	if r.hub != nil {
		told = append(told, runtest.WroteFile("the hub's log", r.hub.proc.Log))
	}
	for _, e := range r.edges {
		told = append(told, runtest.WroteFile("the log of "+e.Name, e.proc.Log))
	}
	for _, c := range r.clusters {
		if c.node == nil || c.node.init == nil {
			continue
		}
		logs, err := filepath.Glob(filepath.Join(c.node.dir, "var/log/pods", AgentNamespace+"_*", "*", "*.log"))
		told = append(told, err)
		for _, log := range logs {
			told = append(told, runtest.WroteFile(fmt.Sprint("the log of an agent of ", c.Name), log))
		}
	}
	return errors.Join(told...)
}

// checkHost says what is missing before anything is made.
func checkHost() error {
	if os.Geteuid() != 0 {
		return errors.New("the Kubernetes rig needs root: it makes network namespaces and runs containers")
	}
	var missing []string
	for program, pkg := range map[string]string{
		"containerd": "containerd", "ctr": "containerd", "runc": "runc", "conntrack": "conntrack", "nft": "nftables",
		"ip": "iproute2", "nsenter": "util-linux", "mount": "mount", "sysctl": "procps", "/usr/lib/cni/bridge": "containernetworking-plugins",
		"/bin/busybox": "busybox-static",
	} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program+" (Debian package "+pkg+")")
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the Kubernetes rig needs programs that are not here: %s", strings.Join(missing, ", "))
	}
	for _, covered := range []string{"/run", "/var/run", "/var/lib", "/var/log", "/proc"} {
		if dir := filepath.Clean(os.TempDir()); dir == covered || strings.HasPrefix(dir, covered+"/") {
			return fmt.Errorf("TMPDIR is %s, which each node covers with its own: set it to another place", dir)
		}
	}
	return nil
}

// step reports a step with the time it took.
func (r *Rig) step(what string, begin time.Time) {
	r.progress(fmt.Sprintf("%s (%.1fs)", what, time.Since(begin).Seconds()))
}
