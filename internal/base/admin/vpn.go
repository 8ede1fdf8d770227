// SPDX-License-Identifier: Apache-2.0

package admin

import "time"

// VPNStatus describes one end of a reversed VPN.
type VPNStatus struct {
	Meta
	Version      string       `json:"version"`
	OpenVPN      string       `json:"openvpn"` // version
	End          string       `json:"end"`     // server or client
	Cluster      string       `json:"cluster"`
	Since        time.Time    `json:"since"`
	Draining     bool         `json:"draining"`
	Unready      string       `json:"unready,omitempty"` // why
	Next         string       `json:"next,omitempty"`    // what to do about it
	Identity     string       `json:"identity,omitempty"`
	Expires      time.Time    `json:"expires,omitzero"`
	HealthListen string       `json:"healthListen"`
	Listen       string       `json:"listen,omitempty"`  // of a server
	Connect      string       `json:"connect,omitempty"` // where a server serves CONNECT
	Open         int          `json:"open"`              // CONNECTs
	Ranges       []RouteRange `json:"ranges"`            // of the cluster
	Routes       []string     `json:"routes,omitempty"`  // of a client, on the server's side
	Tunnels      []VPNTunnel  `json:"tunnels"`
	Peers        []VPNPeer    `json:"peers,omitempty"` // of a server
}

// VPNTunnel is a TUN device, and where its OpenVPN stands.
type VPNTunnel struct {
	Link      string    `json:"link"`
	Table     int       `json:"table"`
	Server    string    `json:"server,omitempty"` // as a client dials it
	Proxy     string    `json:"proxy,omitempty"`
	By        string    `json:"by,omitempty"` // the address of the server, of several
	Addresses []string  `json:"addresses"`
	State     string    `json:"state"` // as OpenVPN calls it
	Since     time.Time `json:"since,omitzero"`
	Heard     time.Time `json:"heard,omitzero"` // of the server
	In        uint64    `json:"in"`             // bytes
	Out       uint64    `json:"out"`
	Unready   string    `json:"unready,omitempty"`
}

// VPNPeer is a client of a server.
type VPNPeer struct {
	Name      string    `json:"name"`
	From      string    `json:"from"`
	Active    bool      `json:"active"` // the cluster's ranges are behind it
	Addresses []string  `json:"addresses"`
	Since     time.Time `json:"since"`
	Answered  time.Time `json:"answered,omitzero"`
	In        uint64    `json:"in"` // bytes
	Out       uint64    `json:"out"`
}
