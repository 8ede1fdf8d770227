// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"fmt"
	"testing"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

// vpnManifests: kube-apiserver takes what `tombolo vpn manifest` prints, without a field that it does not know, and its
// Pod Security admission the pods that come of it.
func (w *members) vpnManifests(t *testing.T) {
	for _, pods := range []int{1, 2} {
		s := manifest.VPNServerDefaults()
		s.Image, s.Namespace, s.Cluster, s.Secret = "tombolo.local/tombolo-vpn:dev", fmt.Sprintf("vpn-server-%d", pods), "c1", "vpn"
		s.Pods = pods
		s.Ranges, s.Maps = []string{"10.244.0.0/16"}, []string{"fd00:10::/64=fd00:20::/64"}
		text, err := manifest.VPNServer(s)
		if err != nil {
			t.Fatal(err)
		}
		w.takes(t, text, s.Namespace, pods)

		c := manifest.VPNClientDefaults()
		c.Image, c.Namespace, c.Cluster, c.Secret = s.Image, fmt.Sprintf("vpn-client-%d", pods), "c1", "vpn"
		c.Pods, c.Ranges, c.Maps, c.Servers = pods, s.Ranges, s.Maps, []string{"vpn.example.com:1194"}
		if text, err = manifest.VPNClient(c); err != nil {
			t.Fatal(err)
		}
		w.takes(t, text, c.Namespace, pods)
	}
}
