// SPDX-License-Identifier: Apache-2.0

package nodeconfig

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/link/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patch = "PATCH " + kubetest.NodeConfigs + "/east.a"

// rig is a writer whose turns the test does.
type rig struct {
	*Writer
	t     *testing.T
	api   *kubetest.Server
	facts *report.Facts
	now   time.Time
	log   bytes.Buffer
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, api: kubetest.New(t), now: time.Unix(10_000, 0), facts: &report.Facts{Linked: true, InForce: true,
		Peers: []report.Peer{{Name: "west.b", Key: member.Key{2}, State: report.Up}}}}
	r.api.AddNode(t, "a")
	r.Writer = New(Options{Log: slog.New(slog.NewTextHandler(&r.log, nil)), Cluster: "east", Node: "a", Server: "here",
		Client: func() *kube.Client { return r.api.Client(t, "a") }, Facts: func() *report.Facts { return r.facts }})
	t.Cleanup(r.client.Close)
	return r
}

// after does a turn some time later, and says what it wrote.
func (r *rig) after(d time.Duration) string {
	before := [2]int{r.requests(""), r.requests("/status")}
	r.now = r.now.Add(d)
	r.turn(r.t.Context(), r.now)
	return fmt.Sprint(r.requests("")-before[0], " plans, ", r.requests("/status")-before[1], " statuses")
}

func (r *rig) requests(sub string) int {
	what, path, _ := strings.Cut(patch+sub, " ")
	return r.api.Requests(what, path)
}

func (r *rig) is(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: %s, want %s\n%s", what, got, want, r.log.String())
	}
}

// object says what the API server has.
func (r *rig) object() string {
	o := r.api.Object(kubetest.NodeConfigs, "east.a")
	if o == nil {
		return "nothing"
	}
	status, _ := o["status"].(map[string]any)
	var states []string
	tunnels, _ := status["tunnels"].([]any)
	for _, x := range tunnels {
		tunnel := x.(map[string]any)
		states = append(states, fmt.Sprint(tunnel["peer"], " ", tunnel["state"]))
	}
	return fmt.Sprint("generation ", o["metadata"].(map[string]any)["generation"], " applied ", status["appliedGeneration"],
		" differs ", status["differs"], " ", strings.Join(states, ", "))
}

const (
	written = "1 plans, 1 statuses"
	nothing = "0 plans, 0 statuses"
)

func TestWritesWhatIsNew(t *testing.T) {
	r := newRig(t)
	known := r.facts
	r.facts = nil
	r.is("before anything is planned", r.after(look), nothing)
	r.facts = known
	r.is("the first plan", r.after(look), written)
	r.is("it", r.object(), "generation 1 applied 1 differs 0 west.b up")
	if uid := fmt.Sprint(r.api.Object(kubetest.NodeConfigs, "east.a")["metadata"].(map[string]any)["ownerReferences"]); !strings.Contains(uid, "uid-a") {
		t.Errorf("its owner is %s", uid)
	}
	r.facts.Peers[0].Reason = "1 ms"
	r.is("another reason", r.after(look), nothing)
	r.facts.Peers[0].State = report.Down
	r.is("a tunnel is down", r.after(look), written)
	r.is("it", r.object(), "generation 1 applied 1 differs 0 west.b down")
	r.facts.InForce, r.facts.Why = false, "EPERM"
	r.facts.Peers = append(r.facts.Peers, report.Peer{Name: "west.c", State: report.Up})
	r.is("another plan, which the kernel does not take", r.after(look), written)
	r.is("it", r.object(), "generation 2 applied 1 differs 1 west.b down, west.c up")
	r.facts.InForce = true
	r.is("it does", r.after(look), written)
	r.is("it", r.object(), "generation 2 applied 2 differs 0 west.b down, west.c up")
	r.is("nothing is new", r.after(again-look), nothing)
	r.api.Delete(kubetest.NodeConfigs, "east.a")
	r.is("somebody removed it", r.after(look), written)
	r.is("it", r.object(), "generation 1 applied 1 differs 0 west.b down, west.c up")
	r.facts.Linked = false
	r.is("the API server has not told yet whether the cluster is linked", r.after(look), nothing)
	r.is("it", r.object(), "generation 1 applied 1 differs 0 west.b down, west.c up")
	r.facts.Whole = true
	r.is("the cluster is not linked any longer", r.after(look), nothing)
	r.is("it", r.object(), "nothing")
	r.is("and stays so", r.after(again), nothing)
	if n := r.api.Requests("DELETE", kubetest.NodeConfigs+"/east.a"); n != 1 {
		t.Errorf("it is removed %d times", n)
	}
	r.facts.Linked = true
	r.is("it is again", r.after(look), written)
	if err := r.Leave(t.Context()); err != nil || r.object() != "nothing" {
		t.Errorf("after the node has left there is %s, %v", r.object(), err)
	}
}

// TestFailure: a failure is said once and in the status, is tried again more and more rarely, and is over at once.
func TestFailure(t *testing.T) {
	r := newRig(t)
	lacks := true
	r.api.Mangle(func(q *http.Request, w http.ResponseWriter) bool { // an API server without the kind
		if lacks && strings.HasPrefix(q.URL.Path, kubetest.NodeConfigs) {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	for range 200 {
		r.after(look)
	}
	if n := r.requests(""); n < 5 || n > 30 {
		t.Errorf("%d tries in 10 minutes", n)
	}
	s := r.Status()[0]
	if s.Code != fault.CodeNotFound || !strings.Contains(s.Warning, "tombolo controller manifest") {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(r.log.String(), "cannot be written"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, r.log.String())
	}
	lacks = false
	r.is("the kind is there", r.after(10*time.Minute), written)
	if s := r.Status()[0]; s.Warning != "" || s.LastContact.IsZero() {
		t.Errorf("%+v", s)
	}
	r.api.Away(true)
	r.facts.Peers[0].State = report.Down
	r.after(look)
	r.api.Away(false)
	r.is("and after the API server was away", r.after(look), written)
}

func TestRun(t *testing.T) {
	r := newRig(t)
	g := run.NewGroup(context.Background())
	g.Go("writer", func(ctx context.Context) error { return r.Run(ctx, nil) })
	runtest.Eventually(t, "the NodeConfig", func() bool { return r.requests("/status") > 0 })
	g.Stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// TestPause: looks take a small part of a processor, and a slow API server does not make them rare.
func TestPause(t *testing.T) {
	for looked, want := range map[time.Duration]time.Duration{
		0: look, 50 * time.Millisecond: look, 100 * time.Millisecond: 5 * time.Second, time.Hour: again,
	} {
		if got := pause(looked); got != want {
			t.Errorf("after a look of %v: %v, want %v", looked, got, want)
		}
	}
}
