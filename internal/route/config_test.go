// SPDX-License-Identifier: Apache-2.0

package route_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/route"
)

const head = "apiVersion: tombolo.dev/v1alpha1\nkind: RouteConfig\n"

func TestParseConfig(t *testing.T) {
	cfg, err := route.ParseConfig("r.yaml", []byte(head+`clusters:
- {name: c1, hubs: ["h1:8443", "h2:8443"], certificate: /c1.pem, ranges: [{range: 10.244.0.0/16}]}
- {name: c2, hubs: ["h1:8443"], certificate: /c2.pem, ranges: [{range: 10.244.0.0/16, as: 240.2.0.0/16}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Link != route.DefaultLink || cfg.RouteTable != 181 || cfg.Rule != 32510 || len(cfg.Addresses) != 2 ||
		cfg.Connections != 4096 || cfg.PerSource != 4096 || cfg.DialTimeout != 30*time.Second || len(cfg.Table.Ranges()) != 2 {
		t.Errorf("%+v", cfg)
	}
}

// TestEveryProblem lists all of them, each with its place.
func TestEveryProblem(t *testing.T) {
	_, err := route.ParseConfig("r.yaml", []byte(head+`clusters:
- name: C1
  hubs: [h1]
  ranges: [{range: 10.244.0.1/16}, {range: 10.96.0.0/12, as: 240.0.0.0/13}]
- {name: c2, hubs: ["h1:8443"], certificate: /c2.pem, ranges: [{range: 10.0.0.0/8}, {range: 10.1.0.0/16}]}
- {name: c2, hubs: [], certificate: /c2.pem, ranges: []}
- {name: c3, hubs: ["h1:8443"], certificate: /c3.pem, ranges: [{range: 10.0.0.0/24}, {range: 192.0.0.0/24}]}
link: "a link"
addresses: [192.0.0.8, 127.0.0.1, 10.9.9.9, "x"]
table: 254
rule: 40000
runDir: run
healthListen: nowhere
limits: {connections: -1}
drainTimeout: -1s
unknown: 1
`))
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		"r.yaml:4:9: clusters[0].name", "r.yaml:5:10: clusters[0].hubs[0]", "r.yaml:4:3: clusters[0].certificate: there is none",
		"clusters[0].ranges[0]: 10.244.0.1/16 has host bits set: write 10.244.0.0/16",
		"clusters[0].ranges[1]: 240.0.0.0/13 is smaller than 10.96.0.0/12",
		"clusters[1].ranges[1]: 10.0.0.0/8 of cluster c2 and 10.1.0.0/16 of cluster c2 overlap here",
		"clusters[2].name: another cluster has the name", "clusters[2].hubs: there is no hub", "clusters[2].ranges: there is no range",
		"clusters[3].ranges[0]: 10.0.0.0/8 of cluster c2 and 10.0.0.0/24 of cluster c3 overlap here: map one of them elsewhere",
		`link: "a link" is not the name of a link`, "addresses[1]: 127.0.0.1 cannot be", "addresses[2]: 10.9.9.9 is the second one",
		`addresses[3]: "x" is not an address`, "table: 254 is not", "rule: 40000 is not", `runDir: "run" is not`, "healthListen:",
		"limits.connections: -1 is negative", "drainTimeout:", "unknown: unknown key",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
}

func TestTheLinksOwnAddress(t *testing.T) {
	_, err := route.ParseConfig("r.yaml", []byte(head+`clusters:
- {name: c1, hubs: ["h1:8443"], certificate: /c1.pem, ranges: [{range: 192.0.0.0/24}]}
`))
	if err == nil || !strings.Contains(err.Error(), "addresses[0]: 192.0.0.8, the link's own address, is in the range 192.0.0.0/24 of cluster c1") {
		t.Error(err)
	}
}
