// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/secret"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
)

// wireGuardAPI serves operators who ask about the WireGuard network.
type wireGuardAPI struct{ *parts }

// choose changes what a cluster says about WireGuard, if anything is asked for, and shows its place.
func (wg *wireGuardAPI) choose(r *http.Request) (any, error) {
	var q admin.WireGuardRequest
	if err := readJSON(r, limit.AdminBody, &q); err != nil {
		return nil, err
	}
	name, err := wg.registered(r)
	if err != nil {
		return nil, err
	}
	change := wireguard.Change{}
	if q.Mode != "" {
		if change.Mode, err = wireguard.ParseMode(q.Mode); err != nil {
			return nil, fault.New(fault.CodeRequest, "the mode is not usable").Because(err)
		}
	}
	if q.PublicKey != "" {
		if change.PublicKey, err = member.ParseKey(q.PublicKey); err != nil {
			return nil, fault.New(fault.CodeRequest, "the key is not usable").Because(err)
		}
	}
	k, err := wg.settle(r, name, change)
	if err != nil {
		return nil, err
	}
	return wg.shown(k), nil
}

// clusterSide gives what the cluster needs to connect to the endpoints, with its keys.
func (wg *wireGuardAPI) clusterSide(r *http.Request) (any, error) {
	name, err := wg.registered(r)
	if err != nil {
		return nil, err
	}
	k, err := wg.settle(r, name, wireguard.Change{})
	if err != nil {
		return nil, err
	}
	side, err := wg.settings.Load().wireguard.ClusterSide(k)
	if err != nil {
		return nil, err
	}
	wg.tookKeys(r, name, k.Name, "the keys of cluster "+k.Name+" for WireGuard were read")
	return side, nil
}

// export gives what is kept of a cluster, with its keys.
func (wg *wireGuardAPI) export(r *http.Request) (any, error) {
	name, err := wg.registered(r)
	if err != nil {
		return nil, err
	}
	all, err := wg.state.WireGuard()
	if err != nil {
		return nil, err
	}
	k, ok := wireguard.Entry(all, name.String())
	if !ok {
		return nil, fault.Newf(fault.CodeNotFound, "nothing is kept of cluster %s that could be exported", name).
			Whyf("it has no place in the WireGuard network, and never had one")
	}
	wg.tookKeys(r, name, k.Name, "cluster "+k.Name+" was exported, with its keys for WireGuard")
	return wireguard.StateOf(k), nil
}

// imports registers a cluster that another hub exported.
func (wg *wireGuardAPI) imports(r *http.Request) (any, error) {
	var raw v1alpha1.ClusterState
	if err := readJSON(r, limit.AdminBody, &raw); err != nil {
		return nil, err
	}
	in, err := wireguard.CheckState(raw)
	if err != nil {
		return nil, err
	}
	name, err := parseCluster(in.Name)
	if err != nil {
		return nil, err
	}
	wg.wireguard.Lock()
	defer wg.wireguard.Unlock()
	cfg, fresh, known := wg.settings.Load().wireguard, r.URL.Query().Get("newAddress") == "true", false
	k, err := wg.state.ChangeWireGuard(name, true, wg.now(), func(all []wireguard.Cluster) (wireguard.Cluster, error) {
		_, known = wireguard.Entry(all, in.Name)
		return cfg.Import(all, in, fresh)
	})
	if err != nil {
		return nil, err
	}
	wg.clusters.add(name)
	if !known {
		wg.log.Info("cluster imported", telemetry.AttrCluster, name, "address", addressOf(k), "mode", k.Mode)
		wg.record.Change(wg.operator(r, name), audit.KindWireGuard, name.String(), "cluster "+k.Name+" was imported")
	}
	return wg.shown(k), nil
}

// endpointPattern is served to operators and to endpoints.
const endpointPattern = "GET /v1/wireguard/endpoints/{endpoint}"

// endpointSide gives what an endpoint needs to let clusters in, with their secrets; or nothing but the version
// if it is the one that was asked with.
func (wg *wireGuardAPI) endpointSide(r *http.Request) (any, error) {
	all, err := wg.state.WireGuard()
	if err != nil {
		return nil, err
	}
	name := r.PathValue("endpoint")
	side, err := wg.settings.Load().wireguard.EndpointSide(name, all)
	if err != nil {
		return nil, err
	}
	if side.Version == r.URL.Query().Get("version") {
		return wireguard.EndpointSide{Version: side.Version}, nil
	}
	wg.tookKeys(r, id.Cluster{}, name, fmt.Sprintf("the secrets of %d clusters were read for endpoint %s",
		len(side.Clusters), name))
	return side, nil
}

// endpointHandler is what an endpoint may ask by a certificate of its name: for its own side.
func (wg *wireGuardAPI) endpointHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(endpointPattern, answering(func(r *http.Request) (any, error) {
		who, ours := wg.credentials.Authentic(peerOf(r.Context()))
		if name := r.PathValue("endpoint"); !ours || who.Name != name {
			return nil, fault.Newf(fault.CodeUnauthorized, "%s may not read what endpoint %s needs", who, clip(name, 64)).
				Whyf("a certificate of the role endpoint is for the endpoint of its name")
		}
		return wg.endpointSide(r)
	}))
	mux.HandleFunc("/", noSuchRequest)
	return mux
}

// registered is the cluster that a request names.
func (wg *wireGuardAPI) registered(r *http.Request) (id.Cluster, error) {
	name, err := parseCluster(r.PathValue("cluster"))
	if err == nil {
		_, err = wg.clusters.get(name)
	}
	return name, err
}

// settle stores what the cluster has from now on, unless it was removed meanwhile.
func (wg *wireGuardAPI) settle(r *http.Request, name id.Cluster, change wireguard.Change) (wireguard.Cluster, error) {
	drawn, err := drawKeys()
	if err != nil {
		return wireguard.Cluster{}, err
	}
	wg.wireguard.Lock()
	defer wg.wireguard.Unlock()
	cfg := wg.settings.Load().wireguard
	var before wireguard.Cluster
	k, err := wg.state.ChangeWireGuard(name, false, wg.now(), func(all []wireguard.Cluster) (wireguard.Cluster, error) {
		if _, err := wg.clusters.get(name); err != nil {
			return wireguard.Cluster{}, err
		}
		before, _ = wireguard.Entry(all, name.String())
		return cfg.Settle(all, name.String(), change, drawn)
	})
	if err != nil || k.Same(before) {
		return k, err
	}
	wg.log.Info("cluster's WireGuard changed", telemetry.AttrCluster, name, "mode", k.Mode, "on", cfg.Serves(k),
		"address", addressOf(k))
	wg.record.Change(wg.operator(r, name), audit.KindWireGuard, name.String(), fmt.Sprintf(
		"WireGuard of cluster %s: mode %s, address %s", name, k.Mode, addressOf(k)))
	return k, nil
}

// drawKeys makes keys for a cluster that has none, as 'wg genkey' and 'tombolo discovery secret create' do.
func drawKeys() (wireguard.Keys, error) {
	broken := func(err error) (wireguard.Keys, error) {
		return wireguard.Keys{}, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return broken(err)
	}
	private := [32]byte(key.Bytes())
	private[0], private[31] = private[0]&248, private[31]&127|64 // RFC 7748 section 5: the same public key
	shared, err := seal.NewSecret(rand.Reader)
	if err != nil {
		return broken(err)
	}
	return wireguard.Keys{Public: member.Key(key.PublicKey().Bytes()),
		Private: wireguard.Secret{Value: secret.Hide(&private)}, Secret: wireguard.Secret{Value: shared.Value}}, nil
}

// tookKeys records that an operator has read keys.
func (wg *wireGuardAPI) tookKeys(r *http.Request, name id.Cluster, subject, what string) {
	wg.record.Change(wg.operator(r, name), audit.KindWireGuard, subject, what)
}

func addressOf(k wireguard.Cluster) string {
	if !k.Address.IsValid() {
		return ""
	}
	return k.Address.String()
}

func (wg *wireGuardAPI) shown(k wireguard.Cluster) admin.WireGuardCluster {
	return admin.WireGuardCluster{
		Meta: meta("WireGuardCluster"), Cluster: k.Name, Mode: string(k.Mode), On: wg.settings.Load().wireguard.Serves(k),
		Address: addressOf(k), PublicKey: k.PublicKey.String(), OwnKey: !k.PublicKey.IsZero() && k.PrivateKey.IsZero(),
	}
}

// wireGuardStatus is nil if there is no such network.
func (p *parts) wireGuardStatus() (*admin.WireGuardStatus, error) {
	cfg := p.settings.Load().wireguard
	if !cfg.Configured() {
		return nil, nil
	}
	all, err := p.state.WireGuard()
	if err != nil {
		return nil, err
	}
	out := admin.WireGuardStatus{Range: cfg.Range.String(), Enabled: cfg.Enabled, Clusters: cfg.Served(all),
		Free: cfg.Free(all)}
	for _, e := range cfg.Endpoints {
		out.Endpoints = append(out.Endpoints, e.Name)
	}
	return &out, nil
}

// fitWireGuard refuses a configuration that does not fit the clusters there are.
func (p *parts) fitWireGuard(next wireguard.Config) error {
	all, err := p.state.WireGuard()
	if err != nil {
		return err
	}
	return next.Replaces(p.settings.Load().wireguard, all)
}

// ofWireGuard measures the network.
func (p *parts) ofWireGuard(count func(wireguard.Config, []wireguard.Cluster) int) func() float64 {
	return func() float64 {
		if p.state == nil {
			return 0
		}
		all, err := p.state.WireGuard()
		if err != nil {
			return 0
		}
		return float64(count(p.settings.Load().wireguard, all))
	}
}
