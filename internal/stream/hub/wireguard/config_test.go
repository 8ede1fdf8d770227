// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

func rawConfig() *v1alpha1.HubWireGuardConfig {
	return &v1alpha1.HubWireGuardConfig{
		Enabled: true, Range: "192.168.128.0/22", ParentRange: "192.168.132.0/22", MaxClusters: 50,
		VPNServer: "vpn-seed-server.shoot--p--{cluster}.svc.cluster.local:1194",
		Endpoints: []v1alpha1.HubWireGuardEndpoint{
			{Name: "e1", Address: "wg1.seed.example.com:51820", PublicKey: keysOf(1).Public.String()},
			{Name: "e2", Address: "192.0.2.7:51820", PublicKey: keysOf(2).Public.String()},
		},
	}
}

func parse(raw *v1alpha1.HubWireGuardConfig) (Config, []string) {
	var problems []string
	c := Parse(raw, func(path, format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	})
	return c, problems
}

func TestConfig(t *testing.T) {
	c, problems := parse(rawConfig())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if !c.Enabled || c.Range.String() != "192.168.128.0/22" || c.Most != 50 || len(c.Endpoints) != 2 ||
		c.Endpoints[0].Overlay4.String() != "192.168.128.1" || c.Endpoints[1].Overlay4.String() != "192.168.128.2" ||
		!c.Endpoints[0].named() || c.Endpoints[1].named() {
		t.Errorf("%+v", c)
	}
	if got := c.server("c1"); got != "vpn-seed-server.shoot--p--c1.svc.cluster.local:1194" {
		t.Error(got)
	}
	if c, problems := parse(nil); c.Configured() || len(problems) > 0 {
		t.Errorf("%+v, %v", c, problems)
	}
}

func TestConfigProblems(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*v1alpha1.HubWireGuardConfig)
		want  []string
	}{
		"no range":           {func(r *v1alpha1.HubWireGuardConfig) { r.Range = "" }, []string{"wireguard.range: it is missing"}},
		"no CIDR":            {func(r *v1alpha1.HubWireGuardConfig) { r.Range = "192.168.128.0" }, []string{"wireguard.range: \"192.168.128.0\" is no range"}},
		"bits of a host":     {func(r *v1alpha1.HubWireGuardConfig) { r.Range = "192.168.128.1/22" }, []string{"the range is 192.168.128.0/22"}},
		"too small":          {func(r *v1alpha1.HubWireGuardConfig) { r.Range = "192.168.128.0/28" }, []string{"wireguard.range: 192.168.128.0/28 is too small"}},
		"IPv6":               {func(r *v1alpha1.HubWireGuardConfig) { r.Range = "fd00::/64" }, []string{"wireguard.range: fd00::/64 is not IPv4"}},
		"public":             {func(r *v1alpha1.HubWireGuardConfig) { r.Range = "192.0.0.0/8" }, []string{"neither private"}},
		"the VPN's":          {func(r *v1alpha1.HubWireGuardConfig) { r.Range = "192.168.0.0/17" }, []string{"192.168.0.0/17 overlaps 192.168.123.0/24"}},
		"that of the parent": {func(r *v1alpha1.HubWireGuardConfig) { r.ParentRange = "192.168.0.0/16" }, []string{"wireguard.parentRange: 192.168.0.0/16, that of the seed above, overlaps range 192.168.128.0/22"}},
		"a bad parent":       {func(r *v1alpha1.HubWireGuardConfig) { r.ParentRange = "x" }, []string{"wireguard.parentRange: \"x\""}},
		"a negative cap":     {func(r *v1alpha1.HubWireGuardConfig) { r.MaxClusters = -1 }, []string{"wireguard.maxClusters: -1"}},
		"no mark":            {func(r *v1alpha1.HubWireGuardConfig) { r.VPNServer = "x:1" }, []string{"wireguard.vpnServer: \"x:1\" does not contain {cluster}"}},
		"another mark":       {func(r *v1alpha1.HubWireGuardConfig) { r.VPNServer = "{cluster}.{seed}:1" }, []string{"wireguard.vpnServer: with the cluster c it is"}},
		"no port":            {func(r *v1alpha1.HubWireGuardConfig) { r.VPNServer = "{cluster}" }, []string{"wireguard.vpnServer"}},
		"no endpoints":       {func(r *v1alpha1.HubWireGuardConfig) { r.Endpoints = nil }, []string{"wireguard.endpoints: there are 0"}},
		"one of everything": {func(r *v1alpha1.HubWireGuardConfig) {
			r.Endpoints[1] = r.Endpoints[0]
			r.Endpoints = append(r.Endpoints, v1alpha1.HubWireGuardEndpoint{Name: "E 3", Address: "x", PublicKey: "y"})
		}, []string{
			`wireguard.endpoints[1].name: "e1" stands in endpoints[0].name already`,
			`wireguard.endpoints[1].address: "wg1.seed.example.com:51820" stands in endpoints[0].address already`,
			`stands in endpoints[0].publicKey already`, "wireguard.endpoints[2].name", "wireguard.endpoints[2].address",
			"wireguard.endpoints[2].publicKey",
		}},
		"nine": {func(r *v1alpha1.HubWireGuardConfig) {
			for i := range 7 {
				r.Endpoints = append(r.Endpoints, v1alpha1.HubWireGuardEndpoint{Name: fmt.Sprint("x", i), Address: fmt.Sprintf("x:%d", i+1), PublicKey: keysOf(byte(9 + i)).Public.String()})
			}
		}, []string{"wireguard.endpoints: there are 9"}},
	} {
		t.Run(name, func(t *testing.T) {
			raw := rawConfig()
			c.spoil(raw)
			_, problems := parse(raw)
			if len(problems) != len(c.want) {
				t.Errorf("%q", problems)
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }) {
					t.Errorf("%q is missing in %q", want, problems)
				}
			}
		})
	}
}
