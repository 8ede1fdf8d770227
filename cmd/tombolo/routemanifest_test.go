// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestRouteManifest: the arguments after -- are the container's, and the namespace of a sidecar is that of its workload.
func TestRouteManifest(t *testing.T) {
	common := []string{"--image", "tombolo.local/tombolo:dev", "--cluster", "c1", "--certificate-secret", "c1-backup",
		"--hub", "hub.example.com:8443", "--map", "10.244.0.0/16=240.2.0.0/16"}
	names := []string{"--dns", "10.96.0.10", "--zone", "c1.internal", "--nameserver", "10.96.0.10"}
	for _, tc := range []struct {
		args, want []string
	}{
		{[]string{"--run", "shell", "--", "sleep", "--infinity"},
			[]string{"kind: Deployment", "image: shell", "- sleep\n", "- --infinity\n", "kind: Namespace"}},
		{append(names, "--run", "shell"), []string{"zone: c1.internal", "dnsPolicy: None", "- 192.0.0.53"}},
		{[]string{"--kind", "sidecar", "--workload", "sts/db", "--namespace", "shop"},
			[]string{"kind: StatefulSet", "name: db\n  namespace: shop", "as: 240.2.0.0/16"}},
	} {
		out, err := runManifest(newRouteManifestCommand(), "", append(common, tc.args...)...)
		if err != nil {
			t.Error(tc.args, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", tc.args, want, out)
			}
		}
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "--run: is missing"},
		{[]string{"--kind", "sidecar", "--workload", "db"}, "--namespace: is missing"},
		{[]string{"--run", "shell", "sleep", "--", "1"}, "stand after --"},
	} {
		if out, err := runManifest(newRouteManifestCommand(), "", append(common, tc.args...)...); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q\n%s", tc.args, err, tc.want, out)
		}
	}
}
