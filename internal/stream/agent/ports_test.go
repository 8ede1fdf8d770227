// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func portsConfig(ports string) (Config, error) {
	return ParseConfig("agent.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nports:\n"+ports))
}

func TestPortsThatAreRefused(t *testing.T) {
	if n := len(DefaultConfig().Ports); n != 0 {
		t.Errorf("%d listeners by default", n)
	}
	_, err := portsConfig(`
- {name: registry, listen: "127.0.0.1:5000"}
- {name: Registry, listen: "localhost:5001"}
- {name: b, listen: "0.0.0.0:5002"}
- {name: c, listen: "127.0.0.1:5000"}
- {name: d, listen: "127.0.0.1:8445"}
- {name: e, listen: "10.0.0.1:5000", from: []}
- {name: f, listen: "[::]:5000", from: [10.0.0.1/8, x, "::ffff:10.0.0.0/104"]}
- {name: g, listen: "127.0.0.1:0"}
- {name: h, listen: "127.0.0.1:0"}
- {listen: ":5000"}
- {name: i, listen: "[::ffff:10.0.0.1]:5003"}
- {name: j, listen: "[fe80::1%eth0]:5003", from: [10.0.0.0/8]}
`)
	for _, want := range []string{
		`ports[1].name: name "Registry" may have`, `ports[1].listen: "localhost:5001" is not ADDRESS:PORT`,
		"ports[2].from: it is missing", "ports[3].listen: ports[0] listens at 127.0.0.1:5000 already",
		"ports[4].listen: healthListen listens at", "ports[5].from: ", "ports[6].from[0]: \"10.0.0.1/8\" has host bits", "ports[6].from[1]: ",
		"ports[6].from[2]: ", "ports[9].name: the name is missing", "ports[9].listen: ", "ports[10].from: it is missing", "ports[11].listen: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	for _, good := range []string{"ports[0]", "ports[7]", "ports[8]"} {
		if strings.Contains(fmt.Sprint(err), good+".") {
			t.Errorf("%s is refused: %v", good, err)
		}
	}
}

func TestWhichSourcesMayConnect(t *testing.T) {
	cfg, err := portsConfig(`
- {name: a, listen: "127.0.0.1:5000"}
- {name: b, listen: "0.0.0.0:5001", from: [10.244.0.0/16, "2001:db8::/32", 192.0.2.1, "::ffff:192.0.2.2"]}
`)
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string][2]bool{
		"127.0.0.1": {true, false}, "::1": {true, false}, "::ffff:127.0.0.1": {true, false}, "10.244.3.9": {false, true},
		"::ffff:10.244.3.9": {false, true}, "10.245.0.1": {false, false}, "2001:db8::7": {false, true}, "2001:db8::7%eth0": {false, true},
		"192.0.2.1": {false, true}, "192.0.2.2": {false, true}, "192.0.2.3": {false, false}, "fe80::1%eth0": {false, false},
	} {
		for i, p := range cfg.Ports {
			if got := p.admits(netip.MustParseAddr(from)); got != want[i] {
				t.Errorf("%s at port %s: %v", from, p.Name, got)
			}
		}
	}
	if cfg.Ports[0].admits(netip.Addr{}) || cfg.Ports[1].admits(netip.Addr{}) {
		t.Error("an unknown source may connect")
	}
}
