// SPDX-License-Identifier: Apache-2.0

package explaining

import (
	"encoding/json"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/explain"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

func TestNodeOf(t *testing.T) {
	v := reach.View{Nodes: []reach.Node{{Name: nameOf("east.a")}, {Name: nameOf("west.a")}, {Name: nameOf("west.b.example")}}}
	for from, want := range map[string]string{"east.a": "east.a", "b.example": "west.b.example", "west.b.example": "west.b.example"} {
		if got, err := nodeOf(v, from); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", from, got, err)
		}
	}
	if _, err := nodeOf(v, "a"); !fault.Has(err, fault.CodeUsage) {
		t.Errorf("a name of two: %v", err)
	}
	if _, err := nodeOf(v, "c"); !fault.Has(err, fault.CodeNotFound) {
		t.Errorf("a name of none: %v", err)
	}
}

func TestTunnels(t *testing.T) {
	f := explain.Facts{Tunnels: map[reach.Name]map[reach.Name]explain.Tunnel{}}
	addTunnels(&f, json.RawMessage(`{"metadata":{"name":"east.a"},"status":{"tunnels":[
		{"peer":"west.b","state":"down","reason":"no answer"}]}}`))
	addTunnels(&f, json.RawMessage(`{"metadata":7}`))
	if got := f.Tunnels[nameOf("east.a")][nameOf("west.b")]; got.State != "down" || got.Reason != "no answer" || len(f.Tunnels) != 1 {
		t.Errorf("%+v", f.Tunnels)
	}
}
