// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestCopiedMachine: two machines with one key answer each other less and less often,
// say what is wrong, and are well again when one of them is gone.
func TestCopiedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		dirs := []string{t.TempDir(), t.TempDir()}
		start := func(name, dir string) *node {
			return w.start(setup{name: name, dir: dir, secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
		}
		a := start("a", dirs[0])
		defer a.stop()
		time.Sleep(settle)
		key, err := os.ReadFile(filepath.Join(dirs[0], keyFile))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dirs[1], keyFile), key, 0o600); err != nil {
			t.Fatal(err)
		}
		b := start("b", dirs[1])
		defer b.stop()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		begun := len(svc.putsOf())
		if begun < 8 || begun > 40 {
			t.Errorf("%d entries in the first minutes", begun)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := len(svc.putsOf()) - begun; n < 12 || n > 100 {
			t.Errorf("%d entries in two hours", n)
		}
		for _, n := range []*node{a, b} {
			if f := sharedOf(n); f == nil || f.Code != fault.CodeMemberShared || !strings.Contains(f.Reason, keyFile) {
				t.Errorf("the status does not say so: %+v", n.Status())
			}
			if !n.Ready() || len(n.Settled()) > 0 {
				t.Error("it is not ready, though a service tells it of the others")
			}
		}
		b.stop()
		time.Sleep(limit.DiscoveryTTL + rivalWaitMost)
		if f := sharedOf(a); f != nil {
			t.Errorf("it goes on complaining: %+v", f)
		}
	})
}

func sharedOf(n *node) *Status {
	for _, s := range n.Status() {
		if s.Source == keyFile {
			return &s
		}
	}
	return nil
}

// TestOnePutBack: a state directory that is an older one is answered at once, and is no fault.
func TestOnePutBack(t *testing.T) {
	now := time.Now()
	a := newAnnouncer(drawnKey(t), nil, time.Minute, 5)
	if err := a.raise(now, uint64(now.UnixNano()), true); err != nil || a.sharedKey(now) != nil {
		t.Errorf("%v, %v", err, a.sharedKey(now))
	}
	var r keyClash
	var waits []time.Duration
	for range 14 {
		waits = append(waits, r.met(now)/time.Second)
	}
	if got := fmt.Sprint(waits); got != "[0s 1ns 2ns 4ns 8ns 16ns 32ns 64ns 128ns 256ns 300ns 300ns 300ns 300ns]" {
		t.Errorf("it waits %s seconds", got)
	}
	if got := r.met(now.Add(limit.DiscoveryTTL)); got != 0 {
		t.Errorf("long after, it waits %v", got)
	}
}

// TestOneStateDirOneMember: a second process on the same directory is refused, and told
// which one has it.
func TestOneStateDirOneMember(t *testing.T) {
	w := newWorld(t)
	s := setup{name: "a", dir: t.TempDir(), secrets: []string{newSecret(t)}}
	a := w.start(s)
	_, err := New(w.config(s), Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
	if !fault.Has(err, fault.CodeStateBusy) || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("%v", err)
	}
	looks := s
	looks.mute = true
	w.start(looks).stop() // who only looks takes nothing
	a.stop()
	w.start(s).stop()
}
