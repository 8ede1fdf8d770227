// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// TestNamesInEveryFormat: a cluster and an agent are their names in logs, also in JSON.
func TestNamesInEveryFormat(t *testing.T) {
	cluster, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := id.ParseAgent("a1")
	if err != nil {
		t.Fatal(err)
	}
	who := id.Identity{TrustDomain: "tombolo.internal", Role: id.RoleAgent, Cluster: cluster, Name: "a1"}
	var out bytes.Buffer
	log, err := telemetry.Logger(&out, "json", "info")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("hello", telemetry.AttrCluster, cluster, telemetry.AttrAgent, agent, "identity", who)
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got[telemetry.AttrCluster] != "c1" || got[telemetry.AttrAgent] != "a1" || got["identity"] != who.URI() {
		t.Errorf("%s", out.String())
	}
}
