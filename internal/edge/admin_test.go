// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/edge"
)

// status asks the admin socket.
func (f *front) status() (st admin.EdgeStatus) {
	f.t.Helper()
	socket := admin.OverSocket(edge.AdminSocket(f.runDir))
	if err := socket.Call(f.t.Context(), http.MethodGet, "/v1/status", nil, &st); err != nil {
		f.t.Fatal(err)
	}
	return st
}

// tunnelTo opens a tunnel to the VPN server of a cluster.
func (f *front) tunnelTo(cluster string) *net.TCPConn {
	f.t.Helper()
	c := dial(f.t, f.connect)
	io.WriteString(c, "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: "+strings.Replace(vpn, "c1", cluster, 1)+"\r\n\r\n")
	if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection Established\r\n\r\n"))); err != nil {
		f.t.Fatal(err)
	}
	return c
}

func TestStatus(t *testing.T) {
	f := start(t, "  - {name: a, clusters: [c1], flows: [api], sources: [203.0.113.7], allow: ['*']}\n", "")
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	at := echo(t, nil)
	way := func(cluster, upstream string) string {
		return "  - {flow: vpn, destinations: ['" + strings.Replace(vpn, "c1", cluster, 1) + "'], upstreams: ['" + upstream + "']}\n"
	}
	f.tenant("c1", way("c1", at))
	f.tenant("c2", way("c2", at))
	f.tenant("c3", way("c3", dead.Addr().String()))
	for _, cluster := range []string{"c1", "c2", "c2"} {
		ping(t, f.tunnelTo(cluster), "hello")
	}
	runtest.Eventually(t, "the dead upstream is ejected", func() bool { // for a second, the first time
		c := dial(t, f.connect)
		defer c.Close()
		io.WriteString(c, "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: "+strings.Replace(vpn, "c1", "c3", 1)+"\r\n\r\n")
		b, err := io.ReadAll(c)
		return err == nil && strings.Contains(string(b), "dial_refused") && slices.Equal(f.status().Ejected, []string{dead.Addr().String()})
	})
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: c4}\nspec:\n  ways:\n" + way("c1", at)
	if err := store.Write(filepath.Join(f.tenants, "c4.yaml"), []byte(text)); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "the file is refused, and the dial over", func() bool {
		return f.status().Tenants.Refused == 1 && f.Open() == 3
	})
	st := f.status()
	if st.Kind != "EdgeStatus" || st.Draining || st.Since.IsZero() || st.HealthListen == "" {
		t.Errorf("%+v", st)
	}
	if want := []admin.EdgeListener{{Name: "tls", Protocol: "tls", Listen: f.tls}, {Name: "vpn", Protocol: "connect", Listen: f.connect}}; !slices.Equal(st.Listeners, want) {
		t.Errorf("%+v, want %+v", st.Listeners, want)
	}
	if r := st.Tenants.Refusals; st.Tenants.InForce != 3 || len(r) != 1 || !r[0].New || filepath.Base(r[0].File) != "c4.yaml" ||
		!strings.Contains(r[0].Reason, "c4.yaml:6:") {
		t.Errorf("%+v", st.Tenants)
	}
	if p := st.Policy; p == nil || p.Files != 1 || p.Rules != 1 || p.Version == "" || p.Refusal != nil {
		t.Errorf("%+v", p)
	}
	if n := st.Tunnels; n.Open != 3 || n.Clusters != 2 || n.Limit <= 0 ||
		!slices.Equal(n.Most, []admin.EdgeClusterTunnels{{Cluster: "c2", Open: 2}, {Cluster: "c1", Open: 1}}) {
		t.Errorf("%+v", n)
	}
	var out any
	socket := admin.OverSocket(edge.AdminSocket(f.runDir))
	if err := socket.Call(t.Context(), http.MethodGet, "/v1/else", nil, &out); !fault.Has(err, fault.CodeNotFound) {
		t.Error(err)
	}
}
