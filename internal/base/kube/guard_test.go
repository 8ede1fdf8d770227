// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestAClusterWithoutThePolicyForMembers is seen by who reads or writes them, and told of
// once; who does neither does not look.
func TestAClusterWithoutThePolicyForMembers(t *testing.T) {
	t.Parallel()
	for lack, says := range map[string]string{
		"policy": "no validatingadmissionpolicies/members.tombolo.dev", "binding": "no validatingadmissionpolicybindings/members.tombolo.dev",
		"deny": "does not deny", "right": "it is not known", "": "",
	} {
		t.Run("without "+lack, func(t *testing.T) {
			t.Parallel()
			s := kubetest.New(t)
			s.AddNode(t, "n1")
			s.Unguard(lack)
			r := kubetest.Start(t, s.Client(t, "n1"), kube.Options{Node: "n1", Self: func() member.Facts { return kubetest.Facts(1) }})
			runtest.Eventually(t, "the own object", func() bool { return r.Knows("n1", 1) })
			runtest.Eventually(t, "the look", func() bool {
				err := r.Part("members").Warning
				return lack == "" && s.Requests("LIST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/members.tombolo.dev") > 0 ||
					fault.Has(err, fault.CodeKubeDenied) && strings.Contains(err.Error(), says)
			})
			if lack == "" && r.Part("members").Warning != nil {
				t.Errorf("nothing is missing, and yet: %v", r.Part("members").Warning)
			}
			if p := r.Part("members"); p.Err != nil || p.Members != 1 {
				t.Errorf("members: %+v", p)
			}
			if n := r.Log.Count("the admission policy for Members is not in force"); n != len(lack)/max(1, len(lack)) {
				t.Errorf("told %d times:\n%s", n, r.Log)
			}
		})
	}
	s := kubetest.New(t)
	s.AddNode(t, "n1")
	own := &kubetest.Own{}
	r := kubetest.Start(t, s.Client(t, "n1"), kube.Options{Node: "n1", SkipMembers: true, SkipObject: true, OwnNode: own.Take})
	runtest.Eventually(t, "the own Node", func() bool { _, n := own.Last(); return n > 0 })
	if r.Part("node").Warning != nil || s.Requests("LIST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/members.tombolo.dev") > 0 {
		t.Error("who has nothing to do with Members looks")
	}
}
