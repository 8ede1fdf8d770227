// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// follows is a source that reads its own Node, "n", and nothing else.
func follows(t *testing.T, s *kubetest.Server) (*kubetest.Own, *kubetest.Reader) {
	t.Helper()
	var seen kubetest.Own
	return &seen, kubetest.Start(t, s.Client(t, "n"), kube.Options{Node: "n", SkipMembers: true, SkipObject: true, OwnNode: seen.Take})
}

func has(t *testing.T, seen *kubetest.Own, uid string, ranges ...string) {
	t.Helper()
	runtest.Eventually(t, uid+" with "+strings.Join(ranges, " "), func() bool {
		n, times := seen.Last()
		return times > 0 && n.UID == uid && slices.Equal(n.PodCIDRs, ranges)
	})
}

// TestOwnNodeThatMayNotBeWatched is asked for by its name, as a pod's role permits, and what the
// server refuses is not asked for each time.
func TestOwnNodeThatMayNotBeWatched(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.OnlyGet(true)
	s.AddNode(t, "n")
	s.Assign(t, "n", "10.244.3.0/24")
	seen, r := follows(t, s)
	has(t, seen, "uid-n", "10.244.3.0/24")
	if p := r.Part(kube.PartNode); p.Err != nil || p.Contact.IsZero() || r.Log.String() != "" {
		t.Errorf("%+v\n%s", p, r.Log)
	}
	if s.Requests("LIST", kubetest.Nodes) != 1 || s.Requests("WATCH", kubetest.Nodes) != 0 {
		t.Error("what was refused is asked for again")
	}
	late := kubetest.Own{}
	s.AddNode(t, "late")
	kubetest.Start(t, s.Client(t, "late"), kube.Options{Node: "late", SkipMembers: true, SkipObject: true, OwnNode: late.Take})
	has(t, &late, "uid-late")
	s.Assign(t, "late", "10.244.9.0/24")
	has(t, &late, "uid-late", "10.244.9.0/24")
	if s.Requests("GET", kubetest.Nodes+"/late") < 2 || s.Requests("LIST", kubetest.Nodes) != 2 { // of two Nodes
		t.Error("what was refused is asked for with each poll")
	}
	other := kubetest.Own{}
	gone := kubetest.Start(t, s.Client(t, "none"), kube.Options{Node: "none", SkipMembers: true, SkipObject: true, OwnNode: other.Take})
	has(t, &other, "")
	if p := gone.Part(kube.PartNode); p.Err != nil || p.Contact.IsZero() {
		t.Errorf("a Node that is not there: %+v", p)
	}
}

// TestOwnNodeWithoutAnAPIServer: nothing is told while it is away, and what it says is told when it is back.
func TestOwnNodeWithoutAnAPIServer(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.AddNode(t, "n")
	s.Assign(t, "n", "10.244.3.0/24")
	seen, r := follows(t, s)
	has(t, seen, "uid-n", "10.244.3.0/24")
	s.Away(true)
	runtest.Eventually(t, "the failure", func() bool { return fault.Has(r.Part(kube.PartNode).Err, fault.CodeKubeAway) })
	has(t, seen, "uid-n", "10.244.3.0/24")
	s.Delete(kubetest.Nodes, "n")
	s.Forget()
	s.Away(false)
	has(t, seen, "")
	s.Put(kubetest.Nodes, "n", `{"metadata":{"uid":"second"},"spec":{"podCIDR":"10.244.4.0/24"}}`) // as before Kubernetes 1.16
	has(t, seen, "second", "10.244.4.0/24")
}

// TestOwnNodeOfAHostileServer: what cannot be read changes nothing, and is told; other Nodes are none of
// ours; there is no more than a bound of anything.
func TestOwnNodeOfAHostileServer(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	many := slices.Repeat([]string{strings.Repeat("1", 1000)}, 100)
	s.AddNode(t, "n")
	s.Assign(t, "n", many...)
	seen, r := follows(t, s)
	bounded := strings.Repeat("1", limit.PodRangeText)
	has(t, seen, "uid-n", slices.Repeat([]string{bounded}, limit.PodRanges+1)...)
	s.Put(kubetest.Nodes, "n", `{"metadata":{"uid":"uid-n"},"spec":{"podCIDRs":"10.0.0.0/8"}}`)
	runtest.Eventually(t, "the complaint", func() bool { return fault.Has(r.Part(kube.PartNode).Err, fault.CodeAnnotation) })
	if n, _ := seen.Last(); len(n.PodCIDRs) != limit.PodRanges+1 {
		t.Errorf("what cannot be read has changed what is known: %v", n)
	}
	s.Put(kubetest.Nodes, "n", `{"metadata":{"uid":"uid-n"},"spec":{"podCIDRs":["10.244.3.0/24"]}}`)
	has(t, seen, "uid-n", "10.244.3.0/24")
	s.Mangle(func(r *http.Request, w http.ResponseWriter) bool { // it does not heed what is asked for
		if r.URL.Query().Get("watch") != "" {
			_, _ = w.Write([]byte(`{"type":"ADDED","object":{"metadata":{"name":"another","uid":"x","resourceVersion":"2"},"spec":{"podCIDRs":["0.0.0.0/0"]}}}` + "\n"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"another","uid":"x"},"spec":{"podCIDRs":["0.0.0.0/0"]}}]}`))
		return true
	})
	s.Away(true)
	s.Away(false)
	has(t, seen, "")
}
