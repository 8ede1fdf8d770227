// SPDX-License-Identifier: Apache-2.0

package connecthead_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
)

func TestParseDestination(t *testing.T) {
	for in, want := range map[string]struct {
		is      connecthead.Destination
		service string
	}{
		vpn: {connecthead.Destination{Kind: connecthead.VPN, Namespace: "shoot--p--s", Replica: -1}, "vpn-seed-server.shoot--p--s.svc.cluster.local:1194"},
		"outbound|1194||vpn-seed-server-4.shoot--p--s.svc.cluster.local": {
			connecthead.Destination{Kind: connecthead.VPN, Namespace: "shoot--p--s", Replica: 4}, "vpn-seed-server-4.shoot--p--s.svc.cluster.local:1194",
		},
		"outbound|443||kube-apiserver.shoot--p--s.svc.cluster.local": {
			connecthead.Destination{Kind: connecthead.API, Namespace: "shoot--p--s", Replica: -1}, "kube-apiserver.shoot--p--s.svc.cluster.local:443",
		},
		"shoot--p--s--kube-apiserver-socket": {connecthead.Destination{Kind: connecthead.Socket, Namespace: "shoot--p--s", Replica: -1}, ""},
	} {
		got, err := connecthead.ParseDestination(in)
		if err != nil || got != want.is || got.String() != in || got.Service() != want.service {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", " " + vpn, vpn + " ", vpn + ".", strings.ToUpper(vpn), vpn + ":1194", vpn + "," + vpn,
		"outbound|1194||vpn-seed-server..svc.cluster.local",
		"outbound|1194||vpn-seed-server-5.ns.svc.cluster.local",
		"outbound|1194||vpn-seed-server-00.ns.svc.cluster.local",
		"outbound|1194||vpn-seed-server-.ns.svc.cluster.local",
		"outbound|1194||vpn-seed-serverx.ns.svc.cluster.local",
		"outbound|1194||vpn-seed-server.ns.other.svc.cluster.local",
		"outbound|1194||vpn-seed-server.ns.svc.cluster.local.evil.example",
		"outbound|1194||kube-apiserver.ns.svc.cluster.local",
		"outbound|443||vpn-seed-server.ns.svc.cluster.local",
		"outbound|443||kube-apiserver.NS.svc.cluster.local",
		"outbound|443||kube-apiserver.n_s.svc.cluster.local",
		"outbound|443||kube-apiserver.-ns.svc.cluster.local",
		"outbound|443||etcd.ns.svc.cluster.local",
		"inbound|443||kube-apiserver.ns.svc.cluster.local",
		"--kube-apiserver-socket", "x.y--kube-apiserver-socket", "kube-apiserver-socket",
		strings.Repeat("a", 64) + "--kube-apiserver-socket",
	} {
		if got, err := connecthead.ParseDestination(in); err == nil {
			t.Errorf("%q is taken for %+v", in, got)
		}
	}
}

func FuzzParseDestination(f *testing.F) {
	f.Add(vpn)
	f.Add("shoot--p--s--kube-apiserver-socket")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := connecthead.ParseDestination(s); err == nil && d.String() != s {
			t.Fatalf("%q is written %q", s, d)
		}
	})
}
