// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

// TestLinkHost: the host cluster of linked clusters has accounts of members, and what holds them to their own cluster.
func TestLinkHost(t *testing.T) {
	o := manifest.ControllerDefaults()
	o.Image, o.LinkHost, o.LinkMembers = "registry.example/tombolo:v1", true, []string{"c2", "c1", "c2"}
	out, err := manifest.Controller(o)
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	for part, times := range map[string]int{
		"name: tombolo-links\n": 1, "kind: ValidatingAdmissionPolicy\n": 2, "kind: ValidatingAdmissionPolicyBinding\n": 2,
		"name: tombolo-link-member\n": 3, "name: tombolo-link-member-c1\n": 1, "name: tombolo-link-member-c2\n": 1,
		"resources: [clusters/status, clusternodes]": 1, "resources: [clusternodes, nodeconfigs]": 2, "failurePolicy: Fail\n": 3,
		"system:serviceaccount:tombolo-links:": 2, "parameterNotFoundAction: Deny": 1, "    name: tombolo-link-bound\n    namespace: tombolo-links\n": 1, "resources: [nodeconfigs]": 0,
	} {
		if n := strings.Count(text, part); n != times {
			t.Errorf("%d times %q, not %d", n, part, times)
		}
	}
	if len("system:serviceaccount:tombolo-links:") != 36 || !strings.Contains(text, "substring(36)") {
		t.Error("the policy cuts the name of a member elsewhere")
	}
	for _, wrong := range []func(*manifest.ControllerOptions){
		func(o *manifest.ControllerOptions) { o.LinkHost = false },
		func(o *manifest.ControllerOptions) { o.LinkMembers = []string{"a.b"} },
		func(o *manifest.ControllerOptions) { o.LinkMembers = []string{strings.Repeat("a", 64)} },
		func(o *manifest.ControllerOptions) { o.Namespace = "tombolo-links" },
	} {
		bad := o
		wrong(&bad)
		if _, err := manifest.Controller(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
