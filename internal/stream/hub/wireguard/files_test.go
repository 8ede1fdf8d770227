// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// wantFiles compares with a file of testdata.
func wantFiles(t *testing.T, golden string, files []File, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "--- %s\n%s", f.Name, f.Data)
	}
	want, err := os.ReadFile("testdata/" + golden)
	if err != nil {
		t.Error(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s", b.String())
	}
}

func TestFilesOfACluster(t *testing.T) {
	c := seed(t, true)
	side, err := c.ClusterSide(cluster("a", On, "192.168.128.16", 11))
	if err != nil {
		t.Fatal(err)
	}
	files, err := side.Files("/etc/tombolo")
	wantFiles(t, "cluster.txt", files, err)
	for _, f := range files {
		if f.Name == fileMesh {
			var mesh v1alpha1.MeshConfig
			if err := conf.Decode(f.Name, f.Data, &mesh).Err(); err != nil {
				t.Error(err)
			}
		}
	}
	side.State.WireGuard.PrivateKey = ""
	if files, err := side.Files("/x"); err != nil || len(files) != 3 || files[1].Name != fileMembers {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := c.ClusterSide(cluster("a", Off, "192.168.128.16", 11)); !fault.Has(err, fault.CodeWireGuardOff) {
		t.Error(err)
	}
}

func TestFilesOfAnEndpoint(t *testing.T) {
	c := seed(t, true)
	all := []Cluster{cluster("b", Inherit, "192.168.128.17", 12), cluster("a", On, "192.168.128.16", 11),
		cluster("c", Off, "192.168.128.18", 13), {Name: "d", Mode: Inherit}}
	side, err := c.EndpointSide("e2", all)
	if err != nil {
		t.Fatal(err)
	}
	files, err := side.Files()
	wantFiles(t, "endpoint.txt", files, err)
	again, err := c.EndpointSide("e2", all[:2])
	if err != nil || again.Version != side.Version {
		t.Errorf("%+v, %v", again, err)
	}
	fewer, err := c.EndpointSide("e2", all[:1])
	if err != nil || fewer.Version == side.Version || len(fewer.Clusters) != 1 {
		t.Errorf("%+v, %v", fewer, err)
	}
	c.VPNServer = ""
	side, err = c.EndpointSide("e1", nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err = side.Files()
	wantFiles(t, "endpoint-empty.txt", files, err)
	if _, err := c.EndpointSide("e3", nil); !fault.Has(err, fault.CodeNotFound) || !strings.Contains(fault.From(err).Next, "e1, e2") {
		t.Error(err)
	}
}

// TestAHubNamesNoFiles: what it calls a cluster is a name, and no path.
func TestAHubNamesNoFiles(t *testing.T) {
	side := EndpointSide{Clusters: []EndpointCluster{{Name: "../x", Address: netip.MustParseAddr("10.0.0.1")}}}
	if files, err := side.Files(); err == nil {
		t.Errorf("%v", files)
	}
}
