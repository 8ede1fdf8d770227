// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
)

// TestWireGuardRange: addresses outlive a restart, a range that leaves them out is refused by a reload and at a start,
// and a removed cluster frees its own. What operators did is recorded, and no key is in records or log.
func TestWireGuardRange(t *testing.T) {
	file := filepath.Join(runtest.Dir(t), "audit.jsonl")
	section := func(within string) string {
		return fmt.Sprintf("audit: {path: %q}\nclusters: [{name: c1}, {name: c2}]\nwireguard:\n  enabled: true\n  range: %s\n"+
			"  endpoints: [{name: e1, address: \"192.0.2.7:51820\", publicKey: \"AQIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"}]\n",
			file, within)
	}
	const small, large, other = "192.168.128.0/24", "192.168.128.0/22", "192.168.132.0/22"
	h := startHub(t, hubSpec{extra: section(small)})
	settle := func(cluster string, q admin.WireGuardRequest, want string) {
		t.Helper()
		var k admin.WireGuardCluster
		h.call(http.MethodPost, "/v1/clusters/"+cluster+"/wireguard", q, &k)
		if !k.On || k.Address != want {
			t.Errorf("%+v, want %s", k, want)
		}
	}
	settle("c1", admin.WireGuardRequest{}, "192.168.128.16")
	var side wireguard.ClusterSide
	h.call(http.MethodPost, "/v1/clusters/c1/wireguard/side", nil, &side)
	if f := wantFault(t, h.reload(section(other)), fault.CodeWireGuardTaken); !strings.Contains(f.Why, "c1 (192.168.128.16)") {
		t.Errorf("%+v", f)
	}
	settle("c2", admin.WireGuardRequest{}, "192.168.128.17") // the old range counts
	if err := h.reload(section(large)); err != nil {
		t.Fatal(err)
	}
	if free := gauge(t, h.reg, "tombolo_hub_wireguard_addresses_free"); free != 1005 || gauge(t, h.reg, "tombolo_hub_wireguard_clusters") != 2 {
		t.Errorf("%v are free", free)
	}
	h.call(http.MethodDelete, "/v1/clusters/c1?force=true", nil, &admin.ClusterRemoval{})
	var records []audit.Record
	for _, want := range []string{"mode inherit, address 192.168.128.16", "the keys of cluster c1"} {
		runtest.Eventually(t, "a record says "+want, func() bool {
			records = audited(t, file, audit.Filter{})
			return slices.ContainsFunc(records, func(r audit.Record) bool {
				return r.Kind == audit.KindWireGuard && r.Subject == "c1" && r.Peer != nil && strings.Contains(r.Reason, want)
			})
		})
	}
	for _, key := range []string{side.State.WireGuard.PrivateKey, side.State.WireGuard.Secret} {
		if said := h.log.String() + fmt.Sprint(records); strings.Contains(said, key) {
			t.Errorf("a key is in the log, or in records")
		}
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	cfg, err := hub.ParseConfig("hub.yaml", []byte(hubYAML(h.dir, h.listen, "127.0.0.1:0", section(other))))
	if err != nil {
		t.Fatal(err)
	}
	_, err = hub.New(cfg, hub.Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
	wantFault(t, err, fault.CodeWireGuardTaken)
	h = startHub(t, hubSpec{dir: h.dir, listen: h.listen, extra: section(large)})
	settle("c2", admin.WireGuardRequest{}, "192.168.128.17")
	runtest.Eventually(t, "a name that was removed comes back", func() bool { // from the next second on
		var k admin.WireGuardCluster
		err := h.admin.Call(runtest.Within(t), http.MethodPost, "/v1/clusters/c1/wireguard", admin.WireGuardRequest{}, &k)
		return err == nil && k.Address == "192.168.128.16"
	})
	h.call(http.MethodPost, "/v1/clusters/c1/wireguard/side", nil, &side)
}
