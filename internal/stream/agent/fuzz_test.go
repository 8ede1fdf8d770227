// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// FuzzParseConfig: what is accepted can be run, and a file has one reading.
func FuzzParseConfig(f *testing.F) {
	const head = "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n"
	for _, s := range []string{
		"", "allow: [10.0.0.0/8:443, '*.svc:1-2', 'fd00::/8']\n", "hubs: [hub.example:8443]\nhealthListen: :0\n",
		"connections: 1\ncarrier: mux\ndrainTimeout: 1ns\n", "join: '@/etc/line'\nlog: {format: json, level: debug}\n", "allow: 10.0.0.0/8\n",
		"ports: [{name: a, listen: '127.0.0.1:1'}, {name: b, listen: '[::]:2', from: ['fd00::/8', 10.0.0.1]}]\n",
	} {
		f.Add([]byte(head + s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("agent.yaml", data)
		again, err2 := ParseConfig("agent.yaml", data)
		if fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("read twice: %v and %v", err, err2)
		}
		if err != nil {
			if !fault.Has(err, fault.CodeConfig) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		if fixed := fixedChanges(c, again); len(fixed) > 0 || !slices.Equal(c.Policy.Texts(), again.Policy.Texts()) {
			t.Errorf("read twice, these differ: %v", fixed)
		}
		if c.Connections < 1 || c.Connections > limit.Connections || c.DialTimeout <= 0 || c.IdleTimeout <= 0 || c.Drain <= 0 {
			t.Errorf("accepted: %+v", c)
		}
		if _, _, err := net.SplitHostPort(c.HealthListen); err != nil {
			t.Errorf("listens at %q", c.HealthListen)
		}
		for _, p := range c.Ports {
			if !p.Listen.IsValid() || p.From == nil || p.admits(netip.Addr{}) {
				t.Errorf("the port %+v", p)
			}
		}
	})
}
