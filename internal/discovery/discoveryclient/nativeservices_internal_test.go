// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestNobodyForcesTheOlderProtocol: a service that has spoken the native one with a node, and
// answers Unimplemented now, gets no word in the older one, also after a restart of the node
// without a cache, until an operator permits it.
func TestNobodyForcesTheOlderProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, dir := newWorld(t), newSecret(t), t.TempDir()
		auto := v1alpha1.MeshService{URL: "http://one", Insecure: true, Proxy: "none"}
		start := func() *node {
			return w.start(setup{name: "a", id: "cluster", dir: dir, secrets: []string{secret}, services: []v1alpha1.MeshService{auto}})
		}
		svc, old := newNativeFake(t), newSideroFake()
		end := w.serve("one:80", svc.register)
		a := start()
		time.Sleep(settle)
		synctest.Wait()
		if s := a.Status()[0]; s.State != StateAttending || s.Protocol != ProtocolNative {
			t.Fatalf("the status is %+v", s)
		}
		end()
		defer w.serve("one:80", old.register)()
		refused := func(when string) {
			t.Helper()
			time.Sleep(3 * limit.DiscoveryBackoff)
			synctest.Wait()
			s := a.Status()[0]
			if s.State != StateAway || s.Code != fault.CodeVersion || !strings.Contains(s.Reason, "has spoken the native one") {
				t.Errorf("%s: the status is %+v", when, s)
			}
			if w := a.Warnings(); len(w) != 1 || w[0] != s.Reason || !strings.Contains(s.Reason, "tombolo discovery downgrade http://one:80") {
				t.Errorf("%s: it warns of %q", when, w)
			}
			old.with(func() {
				if old.hellos > 0 || len(old.updates) > 0 {
					t.Errorf("%s: it is spoken to in the older protocol: %d hellos, %d updates", when, old.hellos, len(old.updates))
				}
			})
		}
		refused("while it runs")
		a.stop()
		if err := os.Remove(filepath.Join(dir, cacheFile)); err != nil {
			t.Fatal(err)
		}
		a = start()
		defer func() { a.stop() }()
		refused("after a restart")

		if _, err := Downgrade(dir, "http://two"); !fault.Has(err, fault.CodeNotFound) || !strings.Contains(err.Error(), "http://one:80") {
			t.Errorf("of another service: %v", err)
		}
		if url, err := Downgrade(dir, "http://one"); err != nil || url != "http://one:80" {
			t.Errorf("%q, %v", url, err)
		}
		time.Sleep(3 * limit.DiscoveryBackoff)
		synctest.Wait()
		if s := a.Status()[0]; s.State != StateAttending || s.Protocol != ProtocolSidero || len(a.Warnings()) > 0 {
			t.Errorf("the operator permits it: %+v", s)
		}
	})
}

// TestServicesThatHaveSpokenNatively as they are kept: a file that cannot be read permits nothing.
func TestServicesThatHaveSpokenNatively(t *testing.T) {
	dir := t.TempDir()
	s := &nativeServices{dir: dir}
	if s.has("http://one:80") {
		t.Error("no service has spoken it yet")
	}
	for range 2 {
		if err := s.note("http://one:80"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.note("https://two:443"); err != nil {
		t.Fatal(err)
	}
	again := &nativeServices{dir: dir}
	if !again.has("http://one:80") || !again.has("https://two:443") || again.has("https://three:443") {
		t.Error("it is not kept")
	}
	if url, err := Downgrade(dir, "two:443"); err != nil || url != "https://two:443" || again.has(url) || !again.has("http://one:80") {
		t.Errorf("by host and port: %q, %v", url, err)
	}
	for i := range 200 {
		if err := s.note("https://" + strings.Repeat("x", 60) + string(rune('a'+i%26)) + strings.Repeat("y", i/26) + ":443"); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, nativeFile)); err != nil || info.Size() > limit.KeyFile || info.Mode().Perm() != 0o600 {
		t.Errorf("%+v, %v", info, err)
	}
	if all, err := readSpoken(dir); err != nil || len(all) < 20 {
		t.Errorf("%d are left, %v", len(all), err)
	}
	for _, damaged := range []string{"", strings.Repeat("\x00", 40), "https://one:443\nhttps://three:44", "https://o\x00e:443\n", strings.Repeat("x", limit.KeyFile+1)} {
		if err := os.WriteFile(filepath.Join(dir, nativeFile), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		unread := &nativeServices{dir: dir}
		if !unread.has("https://three:443") || unread.note("https://three:443") == nil {
			t.Errorf("a file that cannot be read permits the older protocol: %.40q", damaged)
		}
	}
	if err := writeSpoken(dir, []string{"https://one:443"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Downgrade(dir, "one:443"); err != nil || again.has("https://one:443") {
		t.Errorf("the last one is permitted: %v", err)
	}
	memory := &nativeServices{}
	if err := memory.note("http://one:80"); err != nil || !memory.has("http://one:80") || memory.has("https://two:443") {
		t.Errorf("without a directory: %v", err)
	}
}
