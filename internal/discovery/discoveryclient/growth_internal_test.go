// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// TestWorkOfMerging: what is merged for changes all the time, and for leases that end one after the other, has a bound
// that does not know the number of members; the last change is known in time.
func TestWorkOfMerging(t *testing.T) {
	const long = 3 * time.Second
	for _, n := range []int{300, 2000} {
		synctest.Test(t, func(t *testing.T) {
			w, secret := newWorld(t), newSecret(t)
			source := teller{make(chan []roster.Said)}
			a := w.start(setup{name: "a", secrets: []string{secret}, sources: []Source{source}})
			defer a.stop()
			said := make([]roster.Said, n)
			begin := time.Now()
			for i := range said {
				said[i] = roster.Said{Source: roster.Source{Tier: roster.TierKubernetes, Name: "test"}, Facts: member.Facts{ID: fmt.Sprint("m", i), Node: fmt.Sprint("m", i)},
					Until: begin.Add(10*time.Minute + time.Duration(i)*long/time.Duration(n))}
			}
			source.say <- said
			time.Sleep(10 * time.Second)
			synctest.Wait()
			merged := func() float64 {
				var m dto.Metric
				if err := a.members.merged.Write(&m); err != nil {
					t.Fatal(err)
				}
				return m.GetCounter().GetValue()
			}
			before := merged()
			const changes = 300
			for i := range changes {
				said = append([]roster.Said(nil), said...)
				said[7].Facts.Hostname = fmt.Sprint("h", i)
				source.say <- said
				time.Sleep(long / changes)
			}
			synctest.Wait()
			bound := float64(long/gatherEach + 2*time.Duration(n))
			if did := merged() - before; did > bound {
				t.Errorf("%d members: %.0f words merged for changes all the time, at most %.0f should be", n, did, bound)
			}
			time.Sleep(gathering(n))
			synctest.Wait()
			if m := a.member("m7"); m == nil || m.Hostname != fmt.Sprint("h", changes-1) {
				t.Errorf("%d members: the last change is not known in time", n)
			}
			time.Sleep(time.Until(begin.Add(10*time.Minute - time.Second)))
			synctest.Wait()
			before = merged()
			time.Sleep(long + time.Second + gathering(n))
			synctest.Wait()
			if did := merged() - before; did > bound+float64((2*time.Second+gathering(n))/gatherEach) {
				t.Errorf("%d members: %.0f words merged while all leases ended, at most %.0f should be", n, did, bound)
			}
			if left := a.names(); len(left) > 0 {
				t.Errorf("%d live on", len(left))
			}
		})
	}
}

// TestAnnounced: whoever writes this node elsewhere is told of each change of what it says, and of no renewal.
func TestAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		told := make(chan struct{}, 1)
		s := setup{name: "a", secrets: []string{secret}, dir: t.TempDir(), announced: told}
		a := w.start(s)
		defer a.stop()
		time.Sleep(2 * limit.DiscoveryTTL)
		select {
		case <-told:
			t.Error("nothing has changed, and it is told")
		default:
		}
		s.member = func(m *v1alpha1.MeshAnnounce) { m.Hostname = "another" }
		for range 2 { // the second one changes nothing
			if _, err := a.Reload(w.config(s)); err != nil {
				t.Error(err)
			}
		}
		<-told
		if f := a.Self(); f.Hostname != "another" || f.Node != "a" || f.Key != keyOf("a") {
			t.Errorf("%+v", f)
		}
		synctest.Wait()
		if len(told) != 0 {
			t.Error("the same again is told")
		}
	})
}
