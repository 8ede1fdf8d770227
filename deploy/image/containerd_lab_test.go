// SPDX-License-Identifier: Apache-2.0

//go:build lab

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestContainerdRunsTheImage imports the tar with the containerd of this
// machine, but as a daemon of its own with its own directories, and runs it:
// first with a read-only root, where nothing may be writable, then without,
// where the image's own directories are. (/run/tombolo is not looked at: ctr,
// unlike kubelet, covers /run with a tmpfs.) Needs root, and the packages
// containerd and runc.
func TestContainerdRunsTheImage(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image.tar")
	buildImage(t, "--arch", "amd64,arm64", "--out", image)
	c := startContainerd(t)

	c.ctr("images", "import", "--snapshotter", "native", image)
	// The last word of the import: listed under our name, complete for this platform.
	if got := c.ctr("images", "check", "name=="+testTag); !strings.Contains(got, "complete (2/2)") {
		t.Errorf("ctr images check says\n%s", got)
	}
	if got := c.ctr("images", "list", "name=="+testTag); !strings.Contains(got, "linux/amd64,linux/arm64") {
		t.Errorf("ctr images list says\n%s", got)
	}
	for _, tc := range []struct {
		id       string
		args     []string
		writable map[string]bool
	}{
		{"read-only", []string{"--read-only"}, nil},
		{"writable", nil, map[string]bool{"/tmp": true, "/var/lib/tombolo": true}},
	} {
		args := append([]string{"run", "--rm", "--snapshotter", "native", "--fifo-dir", c.dir, "--runc-root", filepath.Join(c.dir, "runc")}, tc.args...)
		got := c.ctr(append(args, testTag, tc.id)...)
		if want := "version " + testVersion + " uid 65532 gid 65532\n"; !strings.HasPrefix(got, want) {
			t.Errorf("%s: the container says %q, want %q first", tc.id, got, want)
		}
		for _, dir := range []string{"/", "/etc", "/usr/local/bin", "/tmp", "/var/lib/tombolo"} {
			if want := fmt.Sprintf("%s writable %v\n", dir, tc.writable[dir]); !strings.Contains(got, want) {
				t.Errorf("%s: the container does not say %q:\n%s", tc.id, want, got)
			}
		}
	}
}

// containerd is a daemon of the test's own.
type containerd struct {
	t   *testing.T
	dir string
}

const containerdConfig = `version = 2
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = %[3]q
[plugins."io.containerd.internal.v1.opt"]
  path = %[4]q
`

// startContainerd returns when the daemon serves; it is gone when the test ends.
func startContainerd(t *testing.T) *containerd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("containerd needs root: run the lab tests as root")
	}
	for _, program := range []string{"containerd", "ctr", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: apt-get install --no-install-recommends containerd runc", err)
		}
	}
	removeWhatAppears(t, "/run/containerd", "/run/containerd/s")
	// Not t.TempDir: its name is as long as the test's, and unix sockets have 108 bytes.
	dir, err := os.MkdirTemp("", "tombolo-ctr-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("containerd left something behind: %v", err)
		}
	})
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf(containerdConfig, filepath.Join(dir, "root"), filepath.Join(dir, "state"),
		filepath.Join(dir, "c.sock"), filepath.Join(dir, "opt"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("containerd", "--config", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewReader(stderr)
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		<-drained
		_ = cmd.Wait()
		kill.Stop()
	})
	giveUp := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	booted := awaitLine(log, "containerd successfully booted")
	giveUp.Stop()
	go func() { // the pipe must not fill up; ends with the daemon
		defer close(drained)
		_, _ = io.Copy(io.Discard, log)
	}()
	if booted != nil {
		t.Fatal(booted)
	}
	return &containerd{t, dir}
}

// removeWhatAppears removes, when the test ends, those of the directories that
// are not there now and empty then: shims put their sockets at a fixed place.
func removeWhatAppears(t *testing.T, dirs ...string) {
	for _, dir := range dirs { // cleanups run in reverse order, so parents come first here
		if _, err := os.Lstat(dir); os.IsNotExist(err) {
			t.Cleanup(func() { _ = os.Remove(dir) })
		}
	}
}

func awaitLine(r *bufio.Reader, want string) error {
	var seen strings.Builder
	for {
		line, err := r.ReadString('\n')
		seen.WriteString(line)
		if strings.Contains(line, want) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("containerd did not start:\n%s", seen.String())
		}
	}
}

// ctr runs one command of containerd's client in the namespace of Kubernetes.
func (c *containerd) ctr(args ...string) string {
	c.t.Helper()
	all := append([]string{"--address", filepath.Join(c.dir, "c.sock"), "--namespace", "k8s.io", "--timeout", "60s"}, args...)
	cmd := exec.CommandContext(c.t.Context(), "ctr", all...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
