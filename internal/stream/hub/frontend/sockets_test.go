// SPDX-License-Identifier: Apache-2.0

package frontend

import (
	"fmt"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/id"
)

func clusterOf(t *testing.T, name string) id.Cluster {
	t.Helper()
	c, err := id.ParseCluster(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheSocketsThatAreWanted(t *testing.T) {
	c1, c2 := clusterOf(t, "c1"), clusterOf(t, "c2")
	r := &Config{Defaults: Defaults{1, 2, 0o660}, Clusters: []Cluster{
		{c1, []Socket{{ProtocolConnect, SocketSpec{"/r/clusters/c1/connect.sock", 0o600, 3, 4, "etcd"}}, {ProtocolKonnectivity, SocketSpec{Path: "/k", Mode: 0o640}}}},
		{c2, nil},
	}}
	asked := map[id.Cluster][]string{c1: {ProtocolConnect}, c2: {ProtocolConnect, ProtocolKonnectivity}}
	got := want(r, asked, "/r")
	expect := map[socketKey]SocketSpec{
		{c1, ProtocolConnect, "/r/clusters/c1/connect.sock"}:           {"/r/clusters/c1/connect.sock", 0o600, 3, 4, "etcd"}, // the configuration wins
		{c1, ProtocolKonnectivity, "/k"}:                               {Path: "/k", Mode: 0o640},
		{c2, ProtocolConnect, "/r/clusters/c2/connect.sock"}:           {"/r/clusters/c2/connect.sock", 0o660, 1, 2, "cluster"},
		{c2, ProtocolKonnectivity, "/r/clusters/c2/konnectivity.sock"}: {"/r/clusters/c2/konnectivity.sock", 0o660, 1, 2, "cluster"},
	}
	if fmt.Sprint(got) != fmt.Sprint(expect) {
		t.Errorf("\n%v, want\n%v", got, expect)
	}
	if got := want(&Config{}, nil, "/r"); len(got) != 0 {
		t.Errorf("nothing is configured or asked for: %v", got)
	}
}
