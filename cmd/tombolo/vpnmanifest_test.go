// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// issueVPN writes the file of an identity of cluster c1, as 'tombolo certificate issue' does.
func issueVPN(t *testing.T, dir string, role id.Role) string {
	t.Helper()
	ca, err := trust.NewAuthority("tombolo.internal", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Key: key.Public(), Life: time.Hour,
		Identity: id.Identity{TrustDomain: "tombolo.internal", Role: role, Cluster: cluster, Name: "n"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := trust.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text = append(append(text, trust.EncodeCertificate(leaf.Raw)...), ca.CertificatePEM()...)
	return writePrivate(t, filepath.Join(dir, string(role)+".pem"), text)
}

func writePrivate(t *testing.T, path string, text []byte) string {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestVPNManifest: the files are printed in a Secret, and what the program would refuse is refused here.
func TestVPNManifest(t *testing.T) {
	dir := t.TempDir()
	server, client := issueVPN(t, dir, id.RoleVPNServer), issueVPN(t, dir, id.RoleVPNClient)
	key := writePrivate(t, filepath.Join(dir, "static.key"), openvpn.WriteStaticKey([openvpn.StaticKey]byte{7}))
	common := []string{"--image", "tombolo.local/tombolo-vpn:dev", "--cluster", "c1", "--map", "10.244.0.0/16=240.2.0.0/16"}
	files := func(identity string, more ...string) []string {
		return append([]string{"--identity", identity, "--static-key", key}, more...)
	}
	for _, tc := range []struct {
		end        string
		args, want []string
	}{
		{"server", files(server, "--namespace", "shop"), []string{"kind: Deployment", "BEGIN PRIVATE KEY", "BEGIN OpenVPN Static key",
			"as: 240.2.0.0/16", "name: vpn-server-connect", "kind: NetworkPolicy"}},
		{"server", []string{"--namespace", "shop", "--secret", "vpn", "--servers", "2"}, []string{"kind: StatefulSet", "name: vpn-server-1"}},
		{"client", files(client, "--server", "vpn.example.com:1194"), []string{"namespace: kube-system", "priorityClassName: system-cluster-critical",
			"privileged: true", "address: vpn.example.com:1194"}},
		{"client", []string{"--secret", "vpn", "--priority-class", "", "--server", "s:1194", "--proxy", "edge.example.com:8132",
			"--destination", "outbound|1194||vpn-seed-server.c1.svc.cluster.local"}, []string{"destination: outbound|1194||vpn-seed-server.c1"}},
	} {
		out, err := runManifest(newVPNManifestCommand(), "", append(append([]string{tc.end}, common...), tc.args...)...)
		if err != nil {
			t.Error(tc.args, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", tc.args, want, out)
			}
		}
	}
	broken := writePrivate(t, filepath.Join(dir, "broken.key"), []byte("no key"))
	for name, tc := range map[string]struct {
		end  string
		args []string
		want string
	}{
		"nothing":             {"server", nil, "--namespace: is missing"},
		"the other role":      {"server", files(client, "--namespace", "shop"), "it is that of spiffe://tombolo.internal/cluster/c1/vpn-client/n"},
		"another cluster":     {"client", files(client, "--cluster", "c2", "--server", "s:1194"), "it is that of spiffe://"},
		"no file":             {"client", files(filepath.Join(dir, "none")), "cannot be read"},
		"no static key":       {"client", []string{"--static-key", broken}, "holds no OpenVPN static key"},
		"udp by a proxy":      {"client", files(client, "--server", "s:1194", "--proxy", "p:8132", "--protocol", "udp"), "--proxy: carries no udp"},
		"covers the transfer": {"client", files(client, "--server", "s:1194", "--range", "192.168.0.0/16"), "the transfer network"},
		"covers this side":    {"server", files(server, "--namespace", "shop", "--local-range", "240.2.0.0/24"), "a range of this side"},
	} {
		out, err := runManifest(newVPNManifestCommand(), "", append(append([]string{tc.end}, common...), tc.args...)...)
		if err == nil || !strings.Contains(fault.From(err).Explain(), tc.want) {
			t.Errorf("%s: %v, want %q\n%s", name, err, tc.want, out)
		}
	}
}
