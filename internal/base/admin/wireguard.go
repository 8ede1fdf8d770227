// SPDX-License-Identifier: Apache-2.0

package admin

// WireGuardRequest is the body of POST /v1/clusters/{cluster}/wireguard; what is empty stays.
type WireGuardRequest struct {
	Mode      string `json:"mode,omitempty"`      // inherit, on or off
	PublicKey string `json:"publicKey,omitempty"` // of a key that the cluster has made itself
}

// WireGuardCluster is the answer to it: the place of a cluster in the WireGuard network, without secrets.
type WireGuardCluster struct {
	Meta
	Cluster   string `json:"cluster"`
	Mode      string `json:"mode"`
	On        bool   `json:"on"`
	Address   string `json:"address,omitempty"` // kept while it is off
	PublicKey string `json:"publicKey,omitempty"`
	OwnKey    bool   `json:"ownKey,omitempty"` // the hub does not have the private key
}

// WireGuardStatus is the hub's WireGuard network.
type WireGuardStatus struct {
	Range     string   `json:"range"`
	Enabled   bool     `json:"enabled"`   // for clusters that say nothing themselves
	Clusters  int      `json:"clusters"`  // that are on
	Free      int      `json:"free"`      // addresses
	Endpoints []string `json:"endpoints"` // names
}
