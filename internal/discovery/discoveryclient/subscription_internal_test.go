// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// TestDrainMakesBeforeItBreaks: the old session ends when the new one knows all.
func TestDrainMakesBeforeItBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		old := newNativeFake(t)
		end := w.serve("one:80", old.register)
		defer end()
		a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
		defer a.stop()
		time.Sleep(settle)
		w.mu.Lock()
		delete(w.at, "one:80") // the next one is not there yet
		w.mu.Unlock()
		old.tell(&discovery.FromService{Frame: &discovery.FromService_Drain{Drain: &discovery.Drain{Reason: "an update"}}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if old.mu.Lock(); len(old.streams) != 1 {
			t.Error("the session ended before there was another one")
		}
		old.mu.Unlock()
		if s := a.Status()[0]; s.State != StateAttending {
			t.Errorf("the state is %v while it is told all", s.State)
		}
		next := newNativeFake(t)
		defer w.serve("one:80", next.register)()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if old.mu.Lock(); len(old.streams) != 0 {
			t.Error("the old session lives on")
		}
		old.mu.Unlock()
		if next.attended != 1 || len(next.putsOf()) != 1 {
			t.Errorf("%d sessions and %d announcements at the new one", next.attended, len(next.puts))
		}
	})
}

// TestSeveralServices: what any of them says is known, and none can take it away.
func TestSeveralServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		one, two := newNativeFake(t), newNativeFake(t)
		end := w.serve("one:80", one.register)
		defer w.serve("two:80", two.register)()
		a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one"), native("two")}})
		defer a.stop()
		b := w.start(setup{name: "b", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one"), native("two")}})
		defer b.stop()
		c := w.start(setup{name: "c", secrets: []string{secret}, services: []v1alpha1.MeshService{native("two")}})
		defer c.stop()
		a.knows(settle, "b", "c")
		if n := len(a.member("b").Sources[roster.FieldID]); n != 2 {
			t.Errorf("%d sources of b", n)
		}
		id, _ := b.ID()
		two.tell(&discovery.FromService{Frame: &discovery.FromService_Change{Change: &discovery.Change{Expired: [][]byte{id[:]}}}})
		a.knows(settle, "b", "c")
		end()
		a.knows(40*time.Minute, "b", "c")
	})
}

// TestBeginningsThatFail: each has a code, and is tried again.
func TestBeginningsThatFail(t *testing.T) {
	challenge := func(c *discovery.Challenge) func() *discovery.FromService {
		return func() *discovery.FromService {
			return &discovery.FromService{Frame: &discovery.FromService_Challenge{Challenge: c}}
		}
	}
	for name, tc := range map[string]struct {
		first func() *discovery.FromService
		code  fault.Code
	}{
		"newer versions only": {challenge(&discovery.Challenge{Nonce: make([]byte, 32), VersionMin: 2, VersionMax: 9}), fault.CodeVersion},
		"no version":          {challenge(&discovery.Challenge{Nonce: make([]byte, 32)}), fault.CodeVersion},
		"a long challenge":    {challenge(&discovery.Challenge{Nonce: make([]byte, 33), VersionMin: 1, VersionMax: 1}), fault.CodeFrameInvalid},
		"another's challenge": {challenge(&discovery.Challenge{Nonce: make([]byte, 32), VersionMin: 1, VersionMax: 1}), fault.CodeEntryInvalid},
		"silence":             {func() *discovery.FromService { return &discovery.FromService{} }, fault.CodeServiceAway},
		"a refusal with a code that nobody knows": {func() *discovery.FromService {
			return refusal("of\x1btomorrow", 0, 0)
		}, "of?tomorrow"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, secret := newWorld(t), newSecret(t)
				svc := newNativeFake(t)
				svc.first = tc.first
				defer w.serve("one:80", svc.register)()
				a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
				defer a.stop()
				time.Sleep(time.Minute)
				synctest.Wait()
				if s := a.Status()[0]; s.State != StateAway || s.Code != tc.code || s.Errors < 2 {
					t.Errorf("the status is %+v, want %v", s, tc.code)
				}
			})
		})
	}
}

// TestAutoTakesTheOlderProtocol where a service does not know the native one, and
// the native one as soon as there is one.
func TestAutoTakesTheOlderProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		old := newSideroFake()
		end := w.serve("one:80", old.register)
		auto := v1alpha1.MeshService{URL: "http://one", Insecure: true, Proxy: "none"}
		a := w.start(setup{name: "a", id: "cluster", secrets: []string{secret}, services: []v1alpha1.MeshService{auto}})
		defer a.stop()
		nameless := w.start(setup{name: "b", secrets: []string{secret}, services: []v1alpha1.MeshService{auto}})
		defer nameless.stop()
		time.Sleep(settle)
		synctest.Wait()
		if s := a.Status()[0]; s.State != StateAttending || s.Protocol != ProtocolSidero || len(old.updates) != 1 {
			t.Errorf("the status is %+v after %d updates", s, len(old.updates))
		}
		if s := nameless.Status()[0]; s.State != StateAway || s.Code != fault.CodeVersion {
			t.Errorf("without an id of the older protocol: %+v", s)
		}
		end()
		svc := newNativeFake(t)
		defer w.serve("one:80", func(s *grpc.Server) { svc.register(s); old.register(s) })()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if s := a.Status()[0]; s.State != StateAttending || s.Protocol != ProtocolNative {
			t.Errorf("the status is %+v", s)
		}
	})
}

// TestLeaveIsBounded: what cannot be reached is named, and not waited for.
func TestLeaveIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		svc.onPut = func(e *discovery.Entry) *discovery.FromService { return &discovery.FromService{} } // no answer
		defer w.serve("one:80", svc.register)()
		a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one"), native("gone")}})
		defer a.stop()
		time.Sleep(settle)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := a.Leave(ctx); !fault.Has(err, fault.CodeServiceAway) {
			t.Errorf("the farewell ended with %v", err)
		}
		puts := svc.putsOf()
		if !puts[len(puts)-1].GetRemoved() {
			t.Error("no farewell was sent")
		}
	})
}
