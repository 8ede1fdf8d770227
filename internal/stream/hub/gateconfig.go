// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// gateFields are the fields of a HubConfig that have a meaning for a Gate, for its messages too.
func gateFields() []string {
	return []string{"apiVersion", "kind", "runDir", "policies", "audit", "limits", "tracing", "clusters"}
}

// ParseGateConfig is ParseConfig for a Gate: it refuses what has a meaning for a hub alone. Without runDir there is no
// admin socket.
func ParseGateConfig(file string, data []byte) (Config, error) {
	var raw v1alpha1.HubConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindHubConfig, raw.Kind)
	for f := range fieldsOf(reflect.TypeFor[v1alpha1.HubConfig]()) {
		if d.Stands(f) && !slices.Contains(gateFields(), f) {
			d.Add(f, "it has no meaning without a hub: here are %s", strings.Join(gateFields()[2:], ", "))
		}
	}
	if len(raw.Clusters) != 1 {
		d.Add("clusters", "%d clusters; one is expected: the name by which policies and records know what is dialled",
			len(raw.Clusters))
	}
	for i := range raw.Clusters {
		at := fmt.Sprintf("clusters[%d]", i)
		if d.Stands(at + ".sockets") {
			d.Add(at+".sockets", "it has no meaning without a hub: flags say where callers connect")
		}
		refuseAgents(d, at+".limits")
	}
	refuseAgents(d, "limits")
	c := validate(raw, d.Add)
	if raw.RunDir == "" {
		c.RunDir = ""
	}
	return c, d.Err()
}

// refuseAgents refuses limits of what only a hub has.
func refuseAgents(d *conf.Document, at string) {
	for _, f := range []string{".agent", ".relay", ".cluster.sessions"} {
		if d.Stands(at + f) {
			d.Add(at+f, "it has no meaning without a hub: there are no sessions and no relay")
		}
	}
}

// fieldsOf yields the names that the fields of a struct have in a file.
func fieldsOf(t reflect.Type) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && !yield(name) {
				return
			}
		}
	}
}
