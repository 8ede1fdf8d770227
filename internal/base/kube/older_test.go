// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestAKindWithoutPins: of an object for the kind of the release before, only what that lacks is left out.
func TestAKindWithoutPins(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.AddNode(t, "ka")
	s.Mangle(func(r *http.Request, w http.ResponseWriter) bool {
		if r.Method != http.MethodPatch || !strings.HasPrefix(r.URL.Path, kubetest.Members) {
			return false
		}
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if err != nil || !strings.Contains(string(body), `"pin"`) && !strings.Contains(string(body), `"engine"`) {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	r := kubetest.Start(t, s.Client(t, "ka"), kube.Options{Node: "ka", Self: func() member.Facts { return kubetest.Facts(1) }})
	runtest.Eventually(t, "the object", func() bool { return r.Knows("ka", 1) })
	if f, _ := r.Find("members", "ka"); f.Facts.Node == "" || len(f.Facts.Clusters) == 0 || !f.Facts.Pin.IsZero() || f.Facts.Engine != "" {
		t.Errorf("%+v", f.Facts)
	}
	// The watch may bring the object before its writer has the answer, and tells.
	runtest.Eventually(t, "it is told", func() bool { return r.Log.Count(`fields="pin, engine"`) > 0 })
	if n := r.Log.Count(`fields="pin, engine"`); n != 1 {
		t.Errorf("told %d times:\n%s", n, r.Log)
	}
}

// TestAnOlderKind: an API server whose kind Member lacks the newest fields refuses an object
// that has them. What it has always known is written then, and that is told once; what is
// refused for another reason is not hidden by that.
func TestAnOlderKind(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError} {
		s := kubetest.New(t)
		s.AddNode(t, "ka")
		s.Mangle(func(r *http.Request, w http.ResponseWriter) bool {
			if r.Method != http.MethodPatch || !strings.HasPrefix(r.URL.Path, kubetest.Members) {
				return false
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return false
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if !strings.Contains(string(body), `"node"`) && !strings.Contains(string(body), `"clusters"`) {
				return false
			}
			w.WriteHeader(status)
			return true
		})
		changed := make(chan struct{})
		r := kubetest.Start(t, s.Client(t, "ka"), kube.Options{Node: "ka", Changed: changed, Self: func() member.Facts { return kubetest.Facts(1) }})
		runtest.Eventually(t, "the object", func() bool { return r.Knows("ka", 1) })
		if said, _ := r.Find("members", "ka"); said.Facts.Node != "" || len(said.Facts.Clusters) > 0 {
			t.Errorf("%+v", said.Facts)
		}
		before := s.Requests("PATCH", kubetest.Members+"/ka")
		changed <- struct{}{}
		runtest.Eventually(t, "the next announcement", func() bool { return s.Requests("PATCH", kubetest.Members+"/ka") >= before+2 })
		if n := r.Log.Count("apply the kind Member again"); n != 1 {
			t.Errorf("told %d times:\n%s", n, r.Log)
		}
	}
	s := kubetest.New(t)
	s.AddNode(t, "ka")
	s.Mangle(func(r *http.Request, w http.ResponseWriter) bool {
		refuses := r.Method == http.MethodPatch
		if refuses {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return refuses
	})
	r := kubetest.Start(t, s.Client(t, "ka"), kube.Options{Node: "ka", Self: func() member.Facts { return kubetest.Facts(1) }})
	runtest.Eventually(t, "the refusal", func() bool { return fault.Has(r.Part("announcement").Err, fault.CodeKubeAway) })
	if r.Log.Count("apply the kind Member again") > 0 {
		t.Errorf("an API server that takes nothing is told to have an older kind:\n%s", r.Log)
	}
}
