// SPDX-License-Identifier: Apache-2.0

// Package id names the parties of Tombolo: clusters, agents, hubs, clients and
// operators. A name is parsed once, where it enters; after that it is a comparable
// value that is always valid. It does not decide who may do what.
package id

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultTrustDomain is the trust domain of a hub for which none is configured.
const DefaultTrustDomain = "tombolo.internal"

// maxLabel follows RFC 1123 section 2.1, so that a name can be used in a host name,
// a file name, a socket path and a SPIFFE path without quoting.
const maxLabel = 63

// Cluster is the name of a cluster, a tenant of a hub.
type Cluster struct{ s string }

// Agent is the name of one agent, unique in its cluster.
type Agent struct{ s string }

// Node is the name of one node of a cluster's mesh, unique in its cluster.
type Node struct{ s string }

// ParseCluster accepts an RFC 1123 label: 1 to 63 of a-z, 0-9 and '-', neither
// first nor last a '-'.
func ParseCluster(s string) (Cluster, error) {
	if err := checkLabel("cluster name", s); err != nil {
		return Cluster{}, err
	}
	return Cluster{s}, nil
}

// ParseAgent accepts an RFC 1123 label.
func ParseAgent(s string) (Agent, error) {
	if err := checkLabel("agent name", s); err != nil {
		return Agent{}, err
	}
	return Agent{s}, nil
}

// maxNode is the longest name of a node: what Kubernetes allows (RFC 1123
// section 2.1), and what fits behind a length of one byte.
const maxNode = 253

// ParseNode accepts an RFC 1123 subdomain, labels with dots between them, like the names
// of Kubernetes nodes.
func ParseNode(s string) (Node, error) {
	if len(s) > maxNode {
		return Node{}, fmt.Errorf("node name has %d characters, at most %d are allowed", len(s), maxNode)
	}
	for label := range strings.SplitSeq(s, ".") {
		if err := checkLabel("node name", label); err != nil {
			return Node{}, err
		}
	}
	return Node{s}, nil
}

func (n Node) String() string { return n.s }

// MarshalText makes JSON logs show the name.
func (n Node) MarshalText() ([]byte, error) { return []byte(n.s), nil }

// IsZero reports whether n names no node.
func (n Node) IsZero() bool { return n.s == "" }

func (c Cluster) String() string { return c.s }

// ClusterMark stands for the name of a cluster in a configuration for many.
const ClusterMark = "{cluster}"

// In puts the cluster's name in place of each mark of a text.
func (c Cluster) In(text string) string { return strings.ReplaceAll(text, ClusterMark, c.s) }

// MarshalText makes JSON logs show the name, which is in an unexported field.
func (c Cluster) MarshalText() ([]byte, error) { return []byte(c.s), nil }

// IsZero reports whether c names no cluster.
func (c Cluster) IsZero() bool { return c.s == "" }

func (a Agent) String() string { return a.s }

// MarshalText makes JSON logs show the name.
func (a Agent) MarshalText() ([]byte, error) { return []byte(a.s), nil }

// CheckHub refuses a string that cannot be a hub's name in its certificate.
func CheckHub(s string) error { return checkLabel("hub name", s) }

// checkLabel refuses a string that is not an RFC 1123 label; what names it in the error.
func checkLabel(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", what)
	case len(s) > maxLabel:
		return fmt.Errorf("%s has %d characters, at most %d are allowed", what, len(s), maxLabel)
	case s[0] == '-' || s[len(s)-1] == '-':
		return fmt.Errorf("%s %q begins or ends with '-'", what, s)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("%s %q has the character %q; a-z, 0-9 and '-' are allowed", what, s, c)
		}
	}
	return nil
}

// Role is the kind of party that a certificate identifies.
type Role string

// The roles.
const (
	RoleHub      Role = "hub"
	RoleAgent    Role = "agent"    // may hold a session for its cluster
	RoleClient   Role = "client"   // may dial into its cluster (kube-apiserver)
	RoleRoute    Role = "route"    // the same, for packets that are routed to it
	RoleOperator Role = "operator" // may use the hub's admin API

	RoleEdge      Role = "edge"      // may dial into every cluster that the policy lets it
	RoleDiscovery Role = "discovery" // a discovery service
	RoleNode      Role = "node"      // may use the relay of its cluster's mesh
	RoleEndpoint  Role = "endpoint"  // may read what this endpoint of a seed's WireGuard network needs

	RoleVPNServer Role = "vpn-server" // is dialled by the VPN clients of its cluster
	RoleVPNClient Role = "vpn-client" // may dial the VPN server of its cluster
)

// InCluster reports whether a party of this role belongs to one cluster.
func (r Role) InCluster() bool {
	return r == RoleAgent || r.Dials() || r == RoleNode || r == RoleVPNServer || r == RoleVPNClient
}

// VPNServerPrefix is what the common name of a vpn-server of a cluster begins with: OpenVPN compares common names, and
// a name alone would say nothing of the cluster.
func VPNServerPrefix(cluster string) string { return cluster + "/" }

// Dials reports whether a party of this role asks a hub for streams into its cluster by HTTP CONNECT.
func (r Role) Dials() bool { return r == RoleClient || r == RoleRoute }

func (r Role) known() bool {
	return r.InCluster() || r == RoleHub || r == RoleOperator || r == RoleEdge || r == RoleDiscovery || r == RoleEndpoint
}

// Identity is the content of a certificate's SPIFFE URI.
//
//	spiffe://<trust-domain>/hub/<name>
//	spiffe://<trust-domain>/operator/<name>
//	spiffe://<trust-domain>/edge/<name>
//	spiffe://<trust-domain>/discovery/<name>
//	spiffe://<trust-domain>/endpoint/<name>
//	spiffe://<trust-domain>/cluster/<cluster>/agent/<name>
//	spiffe://<trust-domain>/cluster/<cluster>/client/<name>
//	spiffe://<trust-domain>/cluster/<cluster>/route/<name>
//	spiffe://<trust-domain>/cluster/<cluster>/node/<name>
//	spiffe://<trust-domain>/cluster/<cluster>/vpn-server/<name>
//	spiffe://<trust-domain>/cluster/<cluster>/vpn-client/<name>
type Identity struct {
	TrustDomain string
	Role        Role
	Cluster     Cluster // zero for roles outside of clusters
	Name        string  // RFC 1123 label; for a node and an endpoint a subdomain
}

// URI renders the identity as a SPIFFE ID (SPIFFE-ID section 2).
func (i Identity) URI() string {
	if i.Cluster.IsZero() {
		return fmt.Sprintf("spiffe://%s/%s/%s", i.TrustDomain, i.Role, i.Name)
	}
	return fmt.Sprintf("spiffe://%s/cluster/%s/%s/%s", i.TrustDomain, i.Cluster, i.Role, i.Name)
}

func (i Identity) String() string { return i.URI() }

// MarshalText makes JSON logs show the URI.
func (i Identity) MarshalText() ([]byte, error) { return []byte(i.URI()), nil }

// ParseURI accepts exactly the eleven forms of Identity, each in its only spelling.
func ParseURI(s string) (Identity, error) {
	rest, ok := strings.CutPrefix(s, "spiffe://")
	if !ok {
		return Identity{}, fmt.Errorf("identity %q is not a SPIFFE URI", s)
	}
	parts := strings.Split(rest, "/")
	out := Identity{TrustDomain: parts[0]}
	if err := CheckTrustDomain(out.TrustDomain); err != nil {
		return Identity{}, err
	}
	switch {
	case len(parts) == 3 && Role(parts[1]).known() && !Role(parts[1]).InCluster():
		out.Role, out.Name = Role(parts[1]), parts[2]
	case len(parts) == 5 && parts[1] == "cluster" && Role(parts[3]).InCluster():
		c, err := ParseCluster(parts[2])
		if err != nil {
			return Identity{}, err
		}
		out.Role, out.Cluster, out.Name = Role(parts[3]), c, parts[4]
	default:
		return Identity{}, fmt.Errorf("identity %q names no hub, operator, edge, agent, client, route, node, vpn-server, "+
			"vpn-client, endpoint or discovery service", s)
	}
	check := func() error { return checkLabel("name in identity", out.Name) }
	if out.Role == RoleNode || out.Role == RoleEndpoint {
		check = func() error { _, err := ParseNode(out.Name); return err }
	}
	if err := check(); err != nil {
		return Identity{}, err
	}
	return out, nil
}

// CheckTrustDomain accepts a lower-case DNS name (SPIFFE-ID section 2.1).
func CheckTrustDomain(s string) error {
	if s == "" || len(s) > 253 {
		return errors.New("trust domain must have 1 to 253 characters")
	}
	for label := range strings.SplitSeq(s, ".") {
		if err := checkLabel("trust domain label", label); err != nil {
			return err
		}
	}
	return nil
}
