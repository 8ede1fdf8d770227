// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestADiscoveryServiceOnAFullDisk: a real one, which is small. The service says
// that it cannot save, in its log, its status, its probe and its metrics, and goes
// on; the last snapshot stays as it is; killed with -9 and started on the full disk
// it has everybody whom that snapshot holds; with room again it saves.
func TestADiscoveryServiceOnAFullDisk(t *testing.T) {
	dir := runtest.Dir(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := startService(t, "settle: 1s\nstore: {memory: {snapshotInterval: 1s}}\n")
	s.Process.Signal(syscall.SIGTERM)
	s.Exit(t)
	if err := errors.Join(os.RemoveAll(s.state()), os.Symlink(dir, s.state())); err != nil {
		t.Fatal(err)
	}
	s.again(t)
	c := s.older(t)
	const saved = 40
	for i := range saved {
		if _, err := c.AffiliateUpdate(runtest.Within(t), update(fmt.Sprint("saved", i), func(r *sdr.AffiliateUpdateRequest) {
			r.AffiliateData = bytes.Repeat([]byte{byte(i)}, 1000)
		})); err != nil {
			t.Fatal(err)
		}
	}
	twice := s.status(t).Store.Saved // what is there by the end of one snapshot is in the next
	for range 2 {
		last := s.status(t).Store.Saved
		runtest.Eventually(t, "a snapshot", func() bool { return s.status(t).Store.Saved.After(last) })
	}
	if !s.status(t).Store.Saved.After(twice) {
		t.Fatal("nothing was saved")
	}
	degraded := func() bool { return strings.Contains(s.status(t).Store.Degraded, "no space left") }

	filler := filepath.Join(dir, "filler")
	full := func() bool { // the service may free its oldest snapshot after the disk was full
		fill(t, filler)
		return degraded()
	}
	runtest.Eventually(t, "the full disk is told", full)
	snapshot := filepath.Join(dir, "members")
	kept, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	mustJoin(t, c, "unsaved") // what is known is served, and more is taken
	if all, err := c.List(runtest.Within(t), &sdr.ListRequest{ClusterId: "c"}); err != nil || len(all.Affiliates) != saved+1 {
		t.Errorf("%d members are listed, %v", len(all.GetAffiliates()), err)
	}
	text := must(t, "discovery", "status", "--admin-socket", filepath.Join(s.dir, "run/discovery/discovery.sock"))
	for where, say := range map[string][2]string{
		"status":  {text, "warning: since "},
		"probe":   {s.page(t, "/readyz"), "ok, degraded: the last snapshot could not be written"},
		"metrics": {s.page(t, "/metrics"), "tombolo_discovery_store_degraded 1\n"},
		"log":     {s.Err.String(), "the snapshot of members cannot be written; the service continues and tries again"},
	} {
		if !strings.Contains(say[0], say[1]) {
			t.Errorf("the %s does not say %q:\n%s", where, say[1], say[0])
		}
	}

	s.Process.Signal(syscall.SIGKILL)
	s.Exit(t)
	if now, err := os.ReadFile(snapshot); err != nil || !bytes.Equal(now, kept) {
		t.Errorf("the last snapshot was changed on the full disk: %v", err)
	}
	s.again(t)
	c = s.older(t)
	all, err := c.List(runtest.Within(t), &sdr.ListRequest{ClusterId: "c"})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for _, a := range all.Affiliates {
		have[a.Id] = len(a.Data)
	}
	for i := range saved {
		if have[fmt.Sprint("saved", i)] != 1000 {
			t.Errorf("member %d, which was saved, is lost", i)
		}
	}
	runtest.Eventually(t, "the full disk is told after the start", full)

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "it saves again", func() bool { return !degraded() })
	s.Says(t, "the snapshot of members is written again")
	if metrics := s.page(t, "/metrics"); !strings.Contains(metrics, "tombolo_discovery_store_degraded 0\n") {
		t.Error("the metrics still say that it is degraded")
	}
	if now, err := os.ReadFile(snapshot); err != nil || bytes.Equal(now, kept) {
		t.Errorf("the snapshot is the old one: %v", err)
	}
	s.Process.Signal(syscall.SIGTERM)
	if code := s.Exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// page asks the admin port.
func (s *served) page(t *testing.T, path string) string {
	t.Helper()
	client := &http.Client{Timeout: runtest.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + s.admin() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fill leaves no byte of the disk of a file, which it makes or makes larger.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}
