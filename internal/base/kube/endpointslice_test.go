// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestReadyEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		`{"endpoints":[{"addresses":["10.0.0.1","10.0.0.9"]}],"ports":[{"name":"a","port":1},{"port":2}]}`:                               "[{10.0.0.1 map[:2 a:1]}]",
		`{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false}},{"addresses":["10.0.0.2"],"conditions":{"ready":true}}]}`: "[{10.0.0.2 map[]}]",
		`{"endpoints":[{"addresses":[]},{}],"ports":[{"name":"a","port":70000},{"name":"b"}]}`:                                           "[]",
		`{"addressType":"FQDN","endpoints":[{"addresses":["a.example"]}]}`:                                                               "[]",
		`{"addressType":"IPv6","endpoints":[{"addresses":["fd00::1"],"conditions":{"ready":null}}]}`:                                     "[{fd00::1 map[]}]",
		`{}`: "[]",
	} {
		var s endpointSlice
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.endpoints()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
