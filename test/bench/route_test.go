// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestRouteIsJudged by what the test of routed mode writes.
func TestRouteIsJudged(t *testing.T) {
	const line = `{"variant":"VARIANT","transport":"WAY","round":0,"values":{"METRIC":VALUE}}` + "\n"
	sample := func(variant, way, metric, value string) string {
		return strings.NewReplacer("VARIANT", variant, "WAY", way, "METRIC", metric, "VALUE", value).Replace(line)
	}
	text := sample(up, wayConnect, "rate", "200") + sample(up, wayRouted, "rate", "160") + sample(up, wayOpenVPN, "rate", "30") +
		sample(down, wayConnect, "rate", "200") + sample(down, wayRouted, "rate", "80") + sample(down, wayOpenVPN, "rate", "30") +
		sample("idle", wayRouted, "routeBytes", "39000")
	records, err := readRoute(strings.NewReader(text))
	if err != nil || len(records) != 7 {
		t.Fatalf("%+v, %v", records, err)
	}
	want := map[string]verdict{"of a CONNECT": good, "of OpenVPN": short, "KiB": good}
	for _, x := range targets(2) {
		if x.from[0].of.measurement != "route" {
			continue
		}
		if _, variant, got := x.judge(records); got != want[x.what] {
			t.Errorf("%s, %s is %s by %s, want %s", x.name, x.what, got, variant, want[x.what])
		}
		delete(want, x.what)
	}
	if len(want) > 0 {
		t.Errorf("no target asks for %v", want)
	}
	if _, err := readRoute(strings.NewReader(text + "{")); err == nil {
		t.Error("half a line is read")
	}
}
