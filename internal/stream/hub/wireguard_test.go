// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
)

const wireGuardSection = `
wireguard:
  range: 192.168.128.0/22
  vpnServer: "vpn.{cluster}.svc:1194"
  endpoints:
  - {name: e1, address: "wg1.example.com:51820", publicKey: "AQIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}
`

// wireGuardHub has the clusters c1 and c2.
func wireGuardHub(t *testing.T, section string) (*Hub, func(method, path string, body, into any) error) {
	t.Helper()
	h := bareHub(t)
	cfg, err := ParseConfig("f", []byte(kind+section))
	if err != nil {
		t.Fatal(err)
	}
	h.settings.Store(&cfg.Reloadable)
	ctx, cancel := context.WithCancel(context.Background())
	h.sockets = frontend.NewSockets(ctx, h.cfg.RunDir, h.front.bindSocket, h.log)
	t.Cleanup(func() { cancel(); h.sockets.Wait() })
	for _, name := range []string{"c1", "c2"} {
		c, err := id.ParseCluster(name)
		if err != nil {
			t.Fatal(err)
		}
		h.clusters.add(c)
	}
	api := h.api.apiHandler()
	return h, func(method, path string, body, into any) error {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(method, path, bytes.NewReader(text)))
		if w.Code != http.StatusOK {
			var b admin.FaultBody
			if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
				t.Fatal(err)
			}
			return b.Fault()
		}
		return json.Unmarshal(w.Body.Bytes(), into)
	}
}

func TestWireGuardOfACluster(t *testing.T) {
	h, call := wireGuardHub(t, wireGuardSection)
	var k admin.WireGuardCluster
	const c1 = "/v1/clusters/c1/wireguard"
	if err := call("POST", c1, admin.WireGuardRequest{}, &k); err != nil || k.On || k.Mode != "inherit" || k.Address != "" {
		t.Errorf("%+v, %v", k, err)
	}
	var side wireguard.ClusterSide
	if err := call("POST", c1+"/side", nil, &side); !fault.Has(err, fault.CodeWireGuardOff) {
		t.Error(err)
	}
	if err := call("GET", "/v1/clusters/c1/export", nil, &k); !fault.Has(err, fault.CodeNotFound) {
		t.Error(err)
	}
	if err := call("POST", c1, admin.WireGuardRequest{Mode: "on"}, &k); err != nil || !k.On || k.Address != "192.168.128.16" {
		t.Errorf("%+v, %v", k, err)
	}
	if err := call("POST", c1+"/side", nil, &side); err != nil || side.State.WireGuard.Address != k.Address || len(side.Endpoints) != 1 {
		t.Errorf("%v, %v", side.Endpoints, err)
	}
	wantPair(t, side.State.WireGuard)
	for body, want := range map[admin.WireGuardRequest]fault.Code{
		{Mode: "maybe"}: fault.CodeRequest, {PublicKey: "x"}: fault.CodeRequest,
		{PublicKey: h.settings.Load().wireguard.Endpoints[0].PublicKey.String()}: fault.CodeWireGuardTaken,
	} {
		if err := call("POST", c1, body, &k); !fault.Has(err, want) {
			t.Errorf("%+v: %v", body, err)
		}
	}
	if err := call("POST", "/v1/clusters/nope/wireguard", admin.WireGuardRequest{Mode: "on"}, &k); !fault.Has(err, fault.CodeClusterUnknown) {
		t.Error(err)
	}
	var list admin.ClusterList
	if err := call("GET", "/v1/clusters", nil, &list); err != nil || len(list.Clusters) != 2 || list.Clusters[0].WireGuard != k.Address || list.Clusters[1].WireGuard != "" {
		t.Errorf("%+v, %v", list, err)
	}
	if st, err := h.wireGuardStatus(); err != nil || st.Clusters != 1 || st.Free != 1006 || strings.Join(st.Endpoints, "") != "e1" {
		t.Errorf("%+v, %v", st, err)
	}
	if n := h.ofWireGuard(wireguard.Config.Free)(); n != 1006 {
		t.Error(n)
	}
}

// wantPair wants keys that belong together, in the forms that others read.
func wantPair(t *testing.T, k v1alpha1.ClusterWireGuard) {
	t.Helper()
	private, err := seal.ParseWireGuardPrivate(k.PrivateKey)
	if err != nil || private.Public().String() != k.PublicKey {
		t.Errorf("the key: %v", err)
	}
	if _, err := seal.ParseSecret(k.Secret); err != nil {
		t.Errorf("the secret: %v", err)
	}
}

func TestWireGuardOfAnEndpoint(t *testing.T) {
	_, call := wireGuardHub(t, strings.Replace(wireGuardSection, "range:", "enabled: true\n  range:", 1))
	const e1 = "/v1/wireguard/endpoints/e1"
	var none, one, same, off wireguard.EndpointSide
	if err := call("GET", e1, nil, &none); err != nil || len(none.Clusters) != 0 || none.Listen != "192.168.128.1:1194" {
		t.Errorf("%+v, %v", none, err)
	}
	var k admin.WireGuardCluster
	if err := call("POST", "/v1/clusters/c2/wireguard", admin.WireGuardRequest{}, &k); err != nil || !k.On {
		t.Fatalf("%+v, %v", k, err)
	}
	if err := call("GET", e1+"?version="+none.Version, nil, &one); err != nil || one.Version == none.Version || len(one.Clusters) != 1 ||
		one.Clusters[0].Target != "vpn.c2.svc:1194" || one.Clusters[0].PublicKey != k.PublicKey {
		t.Errorf("%+v, %v", one, err)
	}
	if err := call("GET", e1+"?version="+one.Version, nil, &same); err != nil || same.Version != one.Version || len(same.Clusters) != 0 {
		t.Errorf("%+v, %v", same, err)
	}
	if err := call("POST", "/v1/clusters/c2/wireguard", admin.WireGuardRequest{Mode: "off"}, &k); err != nil || k.On || k.Address == "" {
		t.Fatalf("%+v, %v", k, err)
	}
	if err := call("GET", e1+"?version="+one.Version, nil, &off); err != nil || off.Version != none.Version {
		t.Errorf("%+v, %v", off, err)
	}
	if err := call("GET", "/v1/wireguard/endpoints/e2", nil, &off); !fault.Has(err, fault.CodeNotFound) {
		t.Error(err)
	}
}

// TestAControlPlaneMoves: its cluster keeps address, keys and secret.
func TestAControlPlaneMoves(t *testing.T) {
	_, from := wireGuardHub(t, wireGuardSection)
	there, to := wireGuardHub(t, wireGuardSection)
	var k, other admin.WireGuardCluster
	if err := from("POST", "/v1/clusters/c1/wireguard", admin.WireGuardRequest{Mode: "on"}, &k); err != nil {
		t.Fatal(err)
	}
	var moved, again v1alpha1.ClusterState
	if err := from("GET", "/v1/clusters/c1/export", nil, &moved); err != nil {
		t.Fatal(err)
	}
	if err := to("POST", "/v1/clusters/c2/wireguard", admin.WireGuardRequest{Mode: "on"}, &other); err != nil {
		t.Fatal(err)
	}
	if err := to("POST", "/v1/import", moved, &k); !fault.Has(err, fault.CodeWireGuardTaken) || !strings.Contains(err.Error(), "cluster c2 has it") {
		t.Error(err)
	}
	moved.Cluster = "c3" // not known there
	for range 2 {
		if err := to("POST", "/v1/import?newAddress=true", moved, &k); err != nil || !k.On || k.Address != "192.168.128.17" {
			t.Errorf("%+v, %v", k, err)
		}
	}
	if err := to("GET", "/v1/clusters/c3/export", nil, &again); err != nil || again.WireGuard.Secret != moved.WireGuard.Secret || again.WireGuard.PrivateKey != moved.WireGuard.PrivateKey {
		t.Errorf("%v", err)
	}
	if all, err := there.state.Clusters(); err != nil || len(all) != 2 || all[1].Name != "c3" {
		t.Errorf("%v, %v", all, err)
	}
	moved.WireGuard.PrivateKey = again.WireGuard.Secret
	if err := to("POST", "/v1/import", moved, &k); !fault.Has(err, fault.CodeRequest) || strings.Contains(err.Error(), again.WireGuard.Secret) {
		t.Error(err)
	}
}

// TestARemovedClusterStaysRemoved: a change that began before the removal does not bring it back, however both meet.
func TestARemovedClusterStaysRemoved(t *testing.T) {
	h, call := wireGuardHub(t, wireGuardSection)
	var seconds atomic.Int64 // a cluster may come again after a second
	h.now = func() time.Time { return time.Unix(1_800_000_000+3*seconds.Add(1), 0) }
	c1 := clusterOf(t, "c1")
	settle := func() error {
		_, err := h.api.network.settle(httptest.NewRequest("POST", "/", nil), c1, wireguard.Change{Mode: wireguard.On})
		return err
	}
	gone := func() {
		t.Helper()
		all, err1 := h.state.Clusters()
		kept, err2 := h.state.WireGuard()
		if err := errors.Join(err1, err2); err != nil || len(all)+len(kept) > 0 {
			t.Fatalf("%v, %d kept, %v", all, len(kept), err)
		}
	}
	remove := func() {
		var out admin.ClusterRemoval
		if err := call("DELETE", "/v1/clusters/c1?force=true", nil, &out); err != nil {
			t.Error(err)
		}
	}
	must(t, settle())
	remove()
	if err := settle(); !fault.Has(err, fault.CodeClusterUnknown) {
		t.Error(err)
	}
	gone()
	for range 50 {
		h.clusters.add(c1)
		g := run.NewGroup(t.Context())
		g.Do(func(context.Context) {
			if err := settle(); err != nil && !fault.Has(err, fault.CodeClusterUnknown) {
				t.Error(err)
			}
		})
		remove()
		must(t, g.Wait())
		gone()
	}
}

// TestDrawnKeys: the private key is as 'wg genkey' makes it.
func TestDrawnKeys(t *testing.T) {
	k, err := drawKeys()
	if err != nil {
		t.Fatal(err)
	}
	raw := *k.Private.Get()
	p, err := ecdh.X25519().NewPrivateKey(raw[:])
	if err != nil || member.Key(p.PublicKey().Bytes()) != k.Public || raw[0]&7 != 0 || raw[31]&0xc0 != 0x40 {
		t.Errorf("%v", err)
	}
}
