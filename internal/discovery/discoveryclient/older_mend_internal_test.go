// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/proto/discovery"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// refusing takes no update of one member.
type refusing struct {
	*sideroFake
	on    atomic.Bool
	tried atomic.Int32
}

func (r *refusing) AffiliateUpdate(ctx context.Context, u *pb.AffiliateUpdateRequest) (*pb.AffiliateUpdateResponse, error) {
	if r.on.Load() && u.GetAffiliateId() == "a" {
		r.tried.Add(1)
		return nil, status.Error(codes.ResourceExhausted, "the cluster is full")
	}
	return r.sideroFake.AffiliateUpdate(ctx, u)
}

// TestRefusedPushKeepsTheWatch: whom a service does not take hears of the others all the
// same, says so, and is announced when it is taken.
func TestRefusedPushKeepsTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := &refusing{sideroFake: newSideroFake()}
		svc.on.Store(true)
		svc.members["b"] = affiliate(t, secret, "b", "b")
		defer w.serve("one:80", func(s *grpc.Server) { pb.RegisterClusterServer(s, svc) })()
		a := older(w, secret, "a")
		defer a.stop()
		a.knows(10*time.Minute, "b")
		if s := a.Status()[0]; s.State != StateAttending || !strings.Contains(s.Refused, "the cluster is full") || !s.Announced.IsZero() {
			t.Errorf("%+v", s)
		}
		if n := svc.tried.Load(); n < 8 || n > 12 {
			t.Errorf("it was tried %d times in 10 minutes", n)
		}
		svc.with(func() {
			if svc.hellos != 1 {
				t.Errorf("there were %d sessions", svc.hellos)
			}
			x := affiliate(t, secret, "c", "c")
			svc.members["c"] = x
			svc.say(&pb.WatchResponse{Affiliates: []*pb.Affiliate{x}})
		})
		a.knows(settle, "b", "c")
		svc.on.Store(false)
		time.Sleep(announceRetry + settle)
		synctest.Wait()
		if s := a.Status()[0]; s.Refused != "" || s.Announced.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// TestJunkOverOwnData: data that somebody puts over a node's own are put right at once,
// and no more often than each minute.
func TestJunkOverOwnData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newSideroFake()
		defer w.serve("one:80", svc.register)()
		a := older(w, secret, "a")
		defer a.stop()
		time.Sleep(settle)
		junk := func() {
			svc.with(func() {
				x := &pb.Affiliate{Id: "a", Data: []byte("junk junk junk junk junk junk junk junk junk")}
				svc.members["a"] = x
				svc.say(&pb.WatchResponse{Affiliates: []*pb.Affiliate{x}})
			})
		}
		junk()
		time.Sleep(settle)
		b := older(w, secret, "b")
		defer b.stop()
		b.knows(settle, "a")
		count := func() (n int) {
			svc.with(func() {
				for _, u := range svc.updates {
					if u.GetAffiliateId() == "a" {
						n++
					}
				}
			})
			return n
		}
		before := count()
		for range 300 { // five minutes
			junk()
			time.Sleep(time.Second)
		}
		if n := count() - before; n < 4 || n > 6 {
			t.Errorf("it was put right %d times in 5 minutes", n)
		}
		b.knows(announceRetry+settle, "a")
		fresh := older(w, secret, "c")
		defer fresh.stop()
		fresh.knows(settle, "a", "b")
	})
}

// TestOlderRotation: a secret is replaced with services of the older protocol alone, node
// by node and in three steps, and at no moment does anybody miss another one.
func TestOlderRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, was, next, svc := newWorld(t), newSecret(t), newSecret(t), newSideroFake()
		defer w.serve("one:80", svc.register)()
		names := []string{"a", "b", "c"}
		nodes := map[string]*node{}
		start := func(name string, secrets ...string) {
			if n := nodes[name]; n != nil {
				n.stop()
			}
			nodes[name] = w.start(setup{name: name, id: "cluster", secrets: secrets, services: []v1alpha1.MeshService{sidero("one")}})
		}
		for _, name := range names {
			start(name, was)
		}
		for _, secrets := range [][]string{{was, next}, {next, was}, {next}} {
			for _, name := range names {
				time.Sleep(time.Hour) // who has gone would be missed
				start(name, secrets...)
				time.Sleep(settle)
				synctest.Wait()
				for _, n := range names {
					var want []string
					for _, o := range names {
						if o != n {
							want = append(want, o)
						}
					}
					nodes[n].knows(0, want...)
					if s := nodes[n].Status()[0]; s.Junk > 0 && len(secrets) > 1 {
						t.Errorf("%s: what another secret seals is junk: %+v", n, s)
					}
				}
			}
		}
		for _, name := range names {
			nodes[name].stop()
		}
	})
}

// TestShortSessionsBackOff: a service that sends members on, or away, as soon as they
// attend is asked less and less often.
func TestShortSessionsBackOff(t *testing.T) {
	for _, name := range []string{"drains", "ends"} {
		synctest.Test(t, func(t *testing.T) {
			w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
			if name == "drains" {
				svc.junk = []*discovery.FromService{{Frame: &discovery.FromService_Drain{Drain: &discovery.Drain{}}}}
			} else {
				svc.ends = time.Second
			}
			defer w.serve("one:80", svc.register)()
			a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
			defer a.stop()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			svc.mu.Lock()
			defer svc.mu.Unlock()
			if svc.attended < 5 || svc.attended > 40 {
				t.Errorf("%s: %d sessions in 5 minutes", name, svc.attended)
			}
		})
	}
}
