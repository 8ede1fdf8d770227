// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// plainPort is where the plain peer's WireGuard listens.
const plainPort = 51998

// clusterID is the name of the cluster in the older protocol.
const clusterID = "lab-of-old"

// TestMeshPlainPeer: a machine with wireguard-go's own program announces itself by the older
// protocol of discovery, as nodes do that know nothing of probes. The first endpoint that it
// names is dead: a node of the mesh comes round to the second one by handshakes alone, and
// says of it that it speaks no probes. Nodes among each other probe as ever.
func TestMeshPlainPeer(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "port-restricted", "open")
	r.settled()
	set := settings{more: map[string]map[string]any{
		"cluster": {"id": clusterID},
		"sources": {"services": []any{
			map[string]any{"url": discoveryAt4, "pin": r.pin, "name": "lab"},
			map[string]any{"url": discoveryAt4, "pin": r.pin, "name": "lab, older", "protocol": "sidero"},
		}},
	}}
	a, b := r.node(r.grid.All[0], set), r.node(r.grid.All[1], set)
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	plain := r.grid.All[2]
	if err := plain.Host.Echo(echo); err != nil {
		t.Fatal(err)
	}
	to := r.plainPeer(plain, a, b)
	begin := time.Now()
	var p peerStatus
	for _, n := range []*node{a, b} {
		r.eventually(n.name+" has the plain peer", n.role, func() error {
			_, s := n.mustStatus()
			for _, p = range s.Peers {
				if p.Node == plainName && p.State == direct {
					return nil
				}
			}
			return fmt.Errorf("its peers are %+v", s.Peers)
		})
		t.Logf("%s reaches the plain peer by %s after %v", n.name, p.Path, time.Since(begin).Round(time.Millisecond))
		if want := netip.AddrPortFrom(plain.Addr4, plainPort).String(); p.Probes || p.Path != want || len(p.Candidates) < 2 {
			t.Errorf("%s says of it %+v, want no probes, and the way %s", n.name, p, want)
		}
		f := n.flood(to)
		r.awaitAfter(f, time.Now())
		f.End()
	}
	if p, err := a.peer(b); err != nil || !p.Probes || p.State != direct {
		t.Errorf("of its like it says %+v, %v", p, err)
	}
	r.requireNoClearText(a, b)
}

// settled starts the discovery service anew as one that knows at once who is there: it tells
// those of the older protocol nothing before.
func (r *rig) settled() {
	r.t.Helper()
	if err := r.discovery.process.Stop(stopGrace); err != nil {
		r.t.Fatal(err)
	}
	file := r.discovery.args[len(r.discovery.args)-1]
	text, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(filepath.Base(file), string(text)+"settle: 100ms\n")
	r.startDiscovery()
}

// plainName is how the plain peer calls itself.
const plainName = "plain"

// plainPeer runs wireguard-go for nodes and announces it by the older protocol. It returns
// its address in the mesh.
func (r *rig) plainPeer(place *lab.Place, nodes ...*node) netip.Addr {
	r.t.Helper()
	program := r.buildWireguardGo()
	secret, err := discoveryclient.ReadSecret(r.secret)
	if err != nil {
		r.t.Fatal(err)
	}
	private := newKey(r.t)
	own := member.Key(private.PublicKey().Bytes())
	prefix := member.Overlay6(clusterID)
	to := prefix.Addr().Next()

	link := fmt.Sprintf("p%d", os.Getpid()%100000) // its socket is the machine's
	cmd := exec.Command(program, "-f", link)
	cmd.Env = append(labtest.Environment(), "LOG_LEVEL=error")
	process, err := place.Host.Start(cmd)
	if err != nil {
		r.t.Fatal(err)
	}
	socket := "/var/run/wireguard/" + link + ".sock"
	r.t.Cleanup(func() {
		process.Stop(stopGrace)
		os.Remove(socket) // of one that did not end by itself
	})
	text := fmt.Sprintf("set=1\nprivate_key=%s\nlisten_port=%d\n", hex.EncodeToString(private.Bytes()), plainPort)
	for _, n := range nodes {
		_, s := n.mustStatus()
		key, err := base64.StdEncoding.DecodeString(s.PublicKey)
		if err != nil {
			r.t.Fatal(err)
		}
		psk := secret.Keys().PairPSK(own, member.Key(key))
		text += fmt.Sprintf("public_key=%s\npreshared_key=%s\nallowed_ip=%s/128\n", hex.EncodeToString(key), hex.EncodeToString(psk[:]), n.overlay6)
	}
	r.configure(socket, text+"\n")
	r.shell(place.Host, fmt.Sprintf("ip addr add %s/128 dev %s\nip link set %s up\nip route add %s dev %s", to, link, link, prefix, link))

	dead := netip.AddrPortFrom(place.Addr4, plainPort-1)
	config, err := json.Marshal(map[string]any{
		"apiVersion": "tombolo.dev/v1alpha1", "kind": "MeshConfig",
		"cluster": map[string]any{"id": clusterID, "secretFiles": []string{r.secret}},
		"node":    map[string]any{"name": plainName, "stateDir": filepath.Join(r.dir, "plain", "state"), "runDir": filepath.Join(r.dir, "plain", "run")},
		"announce": map[string]any{
			"publicKey": base64.StdEncoding.EncodeToString(own[:]), "overlay6": to.String(), "addresses": []string{place.Addr4.String()},
			"endpoints": []string{dead.String(), netip.AddrPortFrom(place.Addr4, plainPort).String()},
		},
		"sources":      map[string]any{"services": []any{map[string]any{"url": discoveryAt4, "pin": r.pin, "protocol": "sidero"}}},
		"healthListen": "127.0.0.1:8447",
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.start(r.role("plain", place.Host, "discovery", "announce", "--config", r.write("plain/announce.yaml", string(config))))
	return to
}
