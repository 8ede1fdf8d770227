// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// TestARebootDuringAnOutageFindsThePeers, of both protocols, until their leases
// end; what is heard then takes the place of what is remembered.
func TestARebootDuringAnOutageFindsThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, dir := newWorld(t), newSecret(t), t.TempDir()
		svc, old := newNativeFake(t), newSideroFake()
		old.members["d"] = affiliate(t, secret, "d", "d")
		endNative, endOlder := w.serve("two:80", svc.register), w.serve("one:80", old.register)
		s := setup{name: "a", id: "cluster", secrets: []string{secret}, dir: dir, services: []v1alpha1.MeshService{native("two"), sidero("one")}}
		b := w.start(setup{name: "b", secrets: []string{secret}, services: []v1alpha1.MeshService{native("two")}})
		c := w.start(setup{name: "c", secrets: []string{secret}, services: []v1alpha1.MeshService{native("two")}})
		a := w.start(s)
		a.knows(settle, "b", "c", "d")
		if err := c.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		c.stop()
		removed := svc.putsOf()
		b.stop()
		a.knows(saveInterval+settle, "b", "d")
		endNative()
		endOlder()
		a.stop()

		data, err := os.ReadFile(filepath.Join(dir, cacheFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"two:80", "members", "native", "cluster"} {
			if _, rest, _ := bytes.Cut(data, []byte("\n")); bytes.Contains(rest, []byte(word)) {
				t.Errorf("the file tells %q", word)
			}
		}
		if info, err := os.Stat(filepath.Join(dir, cacheFile)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file's mode is %v, %v", info.Mode(), err)
		}

		time.Sleep(5 * time.Minute)
		again := w.start(s)
		again.knows(settle, "b", "d")
		if m := again.member("b"); !m.Entries[0].Source.Cached || m.Entries[0].Source.Name != "two:80" {
			t.Errorf("the source of b is %v", m.Entries[0].Source)
		}
		// A replay of what c was before its farewell loses against the cache.
		back := newNativeFake(t)
		for _, e := range removed {
			if !e.GetRemoved() {
				back.entries[string(e.GetMember())] = e
			}
		}
		endNative = w.serve("two:80", back.register)
		again.knows(3*time.Minute, "b", "d")
		if m := again.member("b"); m == nil || m.Entries[0].Source.Cached {
			t.Errorf("b was heard: %+v", m)
		}
		endNative()
		again.knows(12*time.Minute, "b", "d")
		again.stop()
		third := w.start(s) // leases end when they would have ended; no service tells who lives
		third.knows(settle, "b", "d")
		if third.stale("b") || third.stale("d") {
			t.Error("they are stale before their leases are over")
		}
		third.knows(10*time.Minute, "b", "d")
		if !third.stale("b") || !third.stale("d") {
			t.Error("their leases are over, and they are not stale")
		}
		third.stop()
	})
}

func TestLeft(t *testing.T) {
	saved := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	until := saved.Add(20 * time.Minute)
	for name, tc := range map[string]struct {
		now, until time.Time
		want       time.Duration
	}{
		"at once":                     {saved, until, 20 * time.Minute},
		"later":                       {saved.Add(15 * time.Minute), until, 5 * time.Minute},
		"too late":                    {saved.Add(time.Hour), until, -40 * time.Minute},
		"the clock has gone back":     {saved.Add(-30 * 365 * 24 * time.Hour), until, 20 * time.Minute},
		"an end that cannot be right": {saved, saved.Add(365 * 24 * time.Hour), limit.DiscoveryTTL},
	} {
		if got := left(tc.now, saved, tc.until, limit.DiscoveryTTL); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestABadCache is said and not used; one of a newer version is left as it is.
func TestABadCache(t *testing.T) {
	keys := secretOf(t, newSecret(t)).Keys()
	good, err := encodeCache([]seal.Keys{keys}, cached{Saved: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := encodeCache([]seal.Keys{secretOf(t, newSecret(t)).Keys()}, cached{})
	if err != nil {
		t.Fatal(err)
	}
	junk, err := seal.SealCacheFor(rand.Reader, []seal.Keys{keys}, []byte("[]"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := keys.SealCache(rand.Reader, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-5] ^= 1
	cases := map[string]struct {
		data []byte
		code fault.Code
	}{
		"good":              {good, ""},
		"empty":             {nil, fault.CodeStateCorrupt},
		"half the head":     {good[:10], fault.CodeStateCorrupt},
		"the head alone":    {[]byte(cacheHead), fault.CodeStateCorrupt},
		"torn":              {good[:len(good)-1], fault.CodeStateCorrupt},
		"a flipped bit":     {flipped, fault.CodeStateCorrupt},
		"another secret":    {foreign, fault.CodeStateCorrupt},
		"something else":    {append([]byte(cacheHead), junk...), fault.CodeStateCorrupt},
		"newer":             {append([]byte(cacheWord+"3\n"), good[len(cacheHead):]...), fault.CodeStateVersion},
		"the format before": {append([]byte(cacheHead1), before...), ""},
		"that, torn":        {append([]byte(cacheHead1), before[:len(before)-1]...), fault.CodeStateCorrupt},
		"that, as this one": {append([]byte(cacheHead), before...), fault.CodeStateCorrupt},
		"this one, as that": {append([]byte(cacheHead1), good[len(cacheHead):]...), fault.CodeStateCorrupt},
		"no file of ours":   {[]byte("hello\nworld"), fault.CodeStateCorrupt},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := decodeCache([]seal.Keys{keys}, tc.data)
			if tc.code == "" && err != nil || tc.code != "" && !fault.Has(err, tc.code) {
				t.Fatalf("%v, want %q", err, tc.code)
			}
		})
	}
	for name, tc := range cases { // and a node lives with it
		synctest.Test(t, func(t *testing.T) {
			w, dir := newWorld(t), t.TempDir()
			path := filepath.Join(dir, cacheFile)
			if err := os.WriteFile(path, tc.data, 0o600); err != nil {
				t.Fatal(err)
			}
			a := w.start(setup{name: "a", secrets: []string{newSecret(t)}, dir: dir})
			time.Sleep(saveInterval + settle)
			a.stop()
			after, err := os.ReadFile(path)
			if err != nil || bytes.Equal(after, tc.data) != (tc.code == fault.CodeStateVersion) {
				t.Errorf("%s: the file was left: %v, %v", name, bytes.Equal(after, tc.data), err)
			}
			if s := a.Status()[0]; s.Kind != "cache" || name == "newer" && s.Code != fault.CodeStateVersion {
				t.Errorf("%s: the status is %+v", name, s)
			}
		})
	}
}

// TestAFullDisk: the cache and the version cannot be written; the node lives on and says so.
func TestAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, dir := newWorld(t), newSecret(t), t.TempDir()
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		a := w.start(setup{name: "a", secrets: []string{secret}, dir: dir, services: []v1alpha1.MeshService{native("one")}})
		defer a.stop()
		time.Sleep(settle)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the folder was
			t.Fatal(err)
		}
		b := w.start(setup{name: "b", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
		defer b.stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		status := a.Status()
		if s := status[len(status)-1]; s.State != StateBroken || s.Code != fault.CodeStateAccess {
			t.Errorf("the status of the cache is %+v", s)
		}
		b.knows(0, "a")
		a.knows(0, "b")
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		status = a.Status()
		if s := status[len(status)-1]; s.State != StateAttending || s.Code != "" {
			t.Errorf("the status of the cache is %+v after there was room again", s)
		}
	})
}

// TestPrivateFiles: what others may read is refused, and shown nowhere.
func TestPrivateFiles(t *testing.T) {
	dir := t.TempDir()
	key, err := memberKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, keyFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, %v", info.Mode(), err)
	}
	if again, err := memberKey(dir); err != nil || again.ID() != key.ID() {
		t.Errorf("read again: %v, %v", again.ID(), err)
	}
	for _, mode := range []os.FileMode{0o604, 0o602, 0o664, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := memberKey(dir); !fault.Has(err, fault.CodeSecret) {
			t.Errorf("mode %v: %v", mode, err)
		}
		if _, err := ReadSecret(path); !fault.Has(err, fault.CodeSecret) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	if _, err := ReadSecret(dir); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("a folder: %v", err)
	}
	long := filepath.Join(dir, "long")
	if err := os.WriteFile(long, []byte(strings.Repeat("s", limit.KeyFile+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSecret(long); !fault.Has(err, fault.CodeSecret) || strings.Contains(err.Error(), "sss") {
		t.Errorf("a long file: %v", err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := memberKey(dir); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("a damaged key is drawn anew: %v", err)
	}
}

// TestTheCacheOutlivesASecret: the old secret is taken away in an outage, and those who
// were announced under both are known, whichever was heard first; who left stays away.
func TestTheCacheOutlivesASecret(t *testing.T) {
	for _, oldFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, old, young := newWorld(t), newSecret(t), newSecret(t)
			svc, older := newNativeFake(t), newSideroFake()
			end, endOlder := w.serve("one:80", svc.register), w.serve("two:80", older.register)
			services := []v1alpha1.MeshService{native("one"), sidero("two")}
			secrets := []string{young, old}
			if oldFirst {
				secrets = []string{old, young}
			}
			set := setup{name: "a", id: "cluster", dir: t.TempDir(), secrets: secrets, services: services}
			a := w.start(set)
			for _, name := range []string{"b", "c", "d"} {
				defer w.start(setup{name: name, secrets: secrets, services: services[:1]}).stop()
			}
			e := w.start(setup{name: "e", id: "cluster", secrets: secrets, services: services, member: proves(t)})
			a.knows(15*time.Minute, "b", "c", "d", "e")
			endOlder() // which has e still
			e.Leave(t.Context())
			e.stop()
			a.knows(saveInterval+settle, "b", "c", "d")
			end()
			a.stop()
			a = w.start(set) // and what was read is written for both again
			a.knows(saveInterval+settle, "b", "c", "d")
			a.stop()
			set.secrets = []string{young}
			a = w.start(set)
			defer a.stop()
			a.knows(settle, "b", "c", "d")
			a.knows(time.Hour, "b", "c", "d")
			if !a.stale("b") {
				t.Error("b is not stale, and its lease is over")
			}
		})
	}
}

// TestARemovalOfTheFormatBefore counts for as long as one does now.
func TestARemovalOfTheFormatBefore(t *testing.T) {
	keys := secretOf(t, newSecret(t)).Keys()
	key, err := seal.NewMemberKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	removal, err := proto.Marshal(keys.Remove(key, 7, limit.DiscoveryTTL))
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []bool{true, false} {
		f := &diskCache{native: newNativeBook(), subs: &subscriptions{}}
		f.subs.held.Store(&held{keys: []seal.Keys{keys}})
		f.remember(now, cached{first: first, Saved: now, Native: []cachedNative{{Cluster: keys.Cluster(), Entry: removal, Until: now.Add(-time.Minute), Heard: now, Sources: []string{"x"}}}})
		if w := f.native.members[key.ID()]; (w != nil) != first || first && !w.until.Equal(now.Add(staleHold-time.Minute)) {
			t.Errorf("of the first format %v: %+v", first, w)
		}
	}
}

func FuzzCache(f *testing.F) {
	s, err := seal.ParseSecret("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		f.Fatal(err)
	}
	keys := []seal.Keys{s.Keys()}
	for _, plain := range []string{`{}`, `{"native":[{"entry":"AA==","sources":["x"]}]}`, `{"older":[{"id":"x","data":"AA=="}]}`, `{"saved":"x"}`, `null`} {
		f.Add([]byte(plain), true)
	}
	f.Add([]byte(cacheHead+"x"), false)
	f.Add([]byte(cacheWord+"9\nx"), false)
	f.Fuzz(func(t *testing.T, data []byte, sealed bool) {
		if sealed {
			out, err := seal.SealCacheFor(rand.Reader, keys, data)
			if err != nil {
				t.Fatal(err)
			}
			data = append([]byte(cacheHead), out...)
		}
		c, err := decodeCache(keys, data)
		if err != nil {
			return
		}
		fd := &diskCache{native: newNativeBook(), subs: &subscriptions{}}
		fd.subs.held.Store(&held{keys: keys, all: []*subscription{
			{service: Service{Name: "x"}, keys: keys[0], older: newOlderBook("x", "x", s.Sidero())},
		}})
		now := time.Unix(1e9, 0)
		n := fd.remember(now, c)
		if said := fd.native.said(now); len(said) > n {
			t.Errorf("%d said of %d remembered", len(said), n)
		}
	})
}
