// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Floor is the layer of a package: it may import packages on lower floors.
type Floor int

// The floors, lowest first.
const (
	Words    Floor = iota // values and their names
	Deciders              // pure functions of values
	Hands                 // effects: network, kernel, files
	Rooms                 // what runs
	Doors                 // programs and the public library, which connect rooms
)

func (f Floor) String() string {
	return [...]string{"F0 words", "F1 deciders", "F2 hands", "F3 rooms", "doors"}[f]
}

// Package is a row of the table of floors.
type Package struct {
	Path  string // folder; "x/..." is x and all below
	Floor Floor
	Open  bool   // packages on the same floor may import it
	Does  string // why it stands on this floor
}

// Packages is the table of floors. A package that is missing in it is a breach.
func Packages() []Package { return slices.Concat(withoutEffects(), withEffects()) }

func withoutEffects() []Package {
	return []Package{
		{"api/...", Words, false, "the kinds that users write; read by deciders and above"},
		{"proto/...", Words, false, "generated messages; read by deciders and above"},
		{"internal/base/id", Words, true, "names of the parties: every package uses them"},
		{"internal/base/fault", Words, true, "faults: every package has errors"},
		{"internal/base/secret", Words, true, "values that are never printed"},
		{"internal/base/untrusted", Words, true, "texts of peers, cleaned and truncated"},
		{"internal/base/hostname", Words, true, "names of hosts: routing and policy read them alike"},
		{"internal/base/limit", Words, true, "bounds: every parser has one"},
		{"internal/base/member", Words, true, "facts about a member: every package of the mesh and of discovery uses them"},
		{"internal/base/plan", Words, false, "desired state and its difference"},
		{"internal/base/run", Words, false, "owner of goroutines"},
		{"internal/base/conf", Words, false, "strict decoding"},
		{"internal/base/reqmeta", Words, false, "request metadata and trace context"},
		{"internal/base/telemetry", Words, false, "names of log attributes, metrics and events"},

		{"internal/base/proxyheader", Deciders, false, "headers of the PROXY protocol to addresses and back"},
		{"internal/stream/wire", Deciders, false, "bytes to values and back"},
		{"internal/stream/packet", Deciders, false, "konnectivity's packets to bytes and back"},
		{"internal/stream/hub/wireguard", Deciders, false, "clusters to addresses of a seed's WireGuard range, and to files"},
		{"internal/stream/datagram", Deciders, false, "datagrams to bytes of a stream and back"},
		{"internal/access/policy", Deciders, true, "rules to verdicts: who routes speaks of its flows"},
		{"internal/access/gardener", Deciders, false, "what Gardener's acl extension is given to rules"},
		{"internal/access/istio", Deciders, false, "access lists to objects of Istio, and what these decide"},
		{"internal/discovery/roster", Deciders, false, "leased members"},
		{"internal/discovery/seal", Deciders, false, "members to sealed and signed bytes and back"},
		{"internal/mesh/topology", Deciders, false, "members to desired state"},
		{"internal/base/liveness", Deciders, false, "facts to the state of a peer or session"},
		{"internal/mesh/path", Deciders, false, "candidates and answers to the path that packets take"},
		{"internal/mesh/psk", Deciders, false, "preshared keys that two nodes share to the one to try"},
		{"internal/mesh/disco", Deciders, false, "probes between nodes, to values and back"},
		{"internal/mesh/nat", Deciders, false,
			"what a node learns about the NAT in front of it, and which addresses others may try"},
		{"internal/mesh/relayproto", Deciders, false, "frames of the relay, to values and back"},

		{"internal/link/learn", Deciders, false, "objects of a cluster to the ranges of its pods and services"},
		{"internal/link/invite", Deciders, false, "join lines, and what a new link waits for"},
		{"internal/link/kosmos", Deciders, false, "objects of Kosmos to those of linked clusters"},
		{"internal/link/accept", Deciders, false, "linked clusters to those whose ranges are accepted"},
		{"internal/link/doubled", Deciders, true, "claims of nodes to the one that counts: hosts and nodes decide alike"},
		{"internal/link/reach", Deciders, true, "linked clusters to the nodes by which their ranges are reached"},
		{"internal/link/check", Deciders, true, "what a node has measured to what is well, what is not, and what to do"},
		{"internal/link/explain", Deciders, true, "linked clusters and an address to the nodes on the way, there and back"},
		{"internal/link/pools", Deciders, false, "ranges of other clusters to IPPools of Calico"},
		{"internal/link/report", Deciders, false, "what a node of a linked cluster plans and has to its NodeConfig"},
		{"internal/link/share", Deciders, false, "a linked cluster to what others get to know about it"},
		{"internal/link/trouble", Deciders, false, "what is wrong around a linked cluster to what its conditions say"},

		{"internal/route/mapping", Deciders, true, "addresses here to addresses in clusters"},
		{"internal/route/names", Deciders, false, "questions of DNS to those of a cluster, and its answers to ours"},
		{"internal/route/answer", Deciders, false, "faults of a dial to what the caller's TCP sees"},

		{"internal/vpn/openvpn", Deciders, false, "configuration files and management lines of OpenVPN, written and read"},
		{"internal/vpn/network", Deciders, false, "ranges of a tunnel to what the kernel needs for it"},

		{"internal/edge/clienthello", Deciders, false, "the first message of a TLS client to the name that it asks for"},
		{"internal/edge/connecthead", Deciders, true, "the head of a CONNECT to the destination that it names"},
		{"internal/edge/tenant", Deciders, false, "tenants, and which of them a connection is for"},
	}
}

func withEffects() []Package {
	return []Package{
		{"internal/mesh/kernel/...", Hands, false, "netlink, nftables, addresses, WireGuard and IPsec of the kernel"},
		{"internal/base/stunserver", Hands, false, "a STUN server: it answers with the caller's address"},
		{"internal/route/netstack", Hands, false, "the TCP of connections whose packets come from a TUN device"},
		{"internal/base/echo", Hands, true, "echo requests to one address"},
		{"internal/link/probe", Hands, false, "echoes and questions to linked clusters, and what the kernel is set to"},
		{"internal/mesh/portmap", Hands, false, "port mappings of the router"},
		{"internal/mesh/keyexchange", Hands, false, "keys of IPsec over a connection between two nodes"},
		{"internal/mesh/keyconn", Hands, false, "connections between nodes by QUIC, in which keys of IPsec are exchanged"},
		{"internal/mesh/espudp", Hands, false, "the port of ESP in UDP: what is not ESP on it"},
		{"internal/mesh/rawudp", Hands, false, "the port of the kernel's WireGuard: what is not WireGuard on it"},
		{"internal/mesh/datagram", Hands, true, "options of sockets of packets: the mesh's sockets set them"},
		{"internal/mesh/rawesp", Hands, false, "protocol 50 beside the ESP of the kernel: whether it passes"},
		{"internal/mesh/loopback", Hands, false, "how the kernel reaches peers behind a relay: by the loopback link"},
		{"internal/mesh/netcheck", Hands, false, "what the network in front of a node lets through, measured"},
		{"internal/mesh/tunnel", Hands, true,
			"WireGuard over one socket and a TUN: the packets of the mesh; the kernel's engine uses its types"},
		{"internal/stream/carrier", Hands, false, "sessions with streams over a network"},
		{"internal/base/listener", Hands, false, "the listening side: ports, connections that are passed on, HTTP"},
		{"internal/stream/splice", Hands, false, "copies between connections"},
		{"internal/access/trust", Hands, true, "CA, tokens and certificates: enrolment verifies the hub with them"},
		{"internal/base/kube", Hands, false, "reads, writes and watches of Kubernetes"},
		{"internal/base/admin", Hands, true, "the admin port and socket, and their client; the forms of enrolment"},
		{"internal/stream/heartbeat", Hands, false, "the control stream of a session, the same on both ends"},
		{"internal/access/authz", Hands, true, "the policy in force, and the live streams that it is asked about again"},
		{"internal/access/policyfile", Hands, false, "files of the policy: read, watched and put into force"},
		{"internal/edge/tenantfile", Hands, false, "files of tenants: read, watched and put into the table"},
		{"internal/access/audit", Hands, false, "records of dials: written to files and read from them"},
		{"internal/base/otlp", Hands, false, "traces and records to an OpenTelemetry collector"},
		{"internal/base/private", Hands, true, "files that others must not read: every key and secret is one"},
		{"internal/base/socket", Hands, true, "socket properties: the hub's clients read them"},
		{"internal/discovery/discoveryclient", Hands, false,
			"members of this node's clusters, from services, files and a cache"},
		{"internal/base/store", Hands, true,
			"state on disk: packages with state of their own lock and replace files with it"},
		{"internal/access/enrol", Hands, false, "certificates of agents and nodes: requested, renewed and stored"},
		{"internal/base/confdir", Hands, true,
			"files and folders, read and watched: what they mean is the business of other packages on this floor"},
		{"internal/base/proxy", Hands, true, "tunnels through an HTTP proxy: any package that dials out may need one"},
		{"internal/mesh/relay", Hands, false, "connections of a node to the relay of hubs"},

		{"internal/stream/hub/...", Rooms, false, "accepts agents and opens streams"},
		{"internal/stream/agent/...", Rooms, false, "dials out from the private side"},
		{"internal/route", Rooms, false, "routed mode: connections from a TUN device, through hubs"},
		{"internal/vpn/forward", Rooms, false, "connections of clusters in a mesh, to their OpenVPN servers"},
		{"internal/vpn/routes", Rooms, false, "the route of a machine to the endpoint machine that answers"},
		{"internal/vpn", Rooms, false, "the reversed VPN by OpenVPN, which it starts"},
		{"internal/link/nodeconfig", Rooms, false, "keeps the NodeConfig of a node as the node has it"},
		{"internal/link/federation", Rooms, false, "what a node knows of linked clusters"},
		{"internal/mesh/...", Rooms, false, "nodes across sites"},
		{"internal/discovery/announce", Rooms, false, "the admin API of a node's member"},
		{"internal/discovery/...", Rooms, false, "where members find each other"},
		{"internal/edge/extauthz", Rooms, false, "decides for an Envoy that asks"},
		{"internal/edge/...", Rooms, false, "the public front door of many clusters"},
		{"internal/stream/konnectivity/...", Rooms, false, "the reference's wire: a frontend, and both ends of its tunnels"},
		{"internal/control/...", Rooms, false, "the controller: objects of Kubernetes, kept as policies say"},
		{"internal/access/replay", Rooms, false, "recorded dials, decided again by other policies"},
		{"internal/demo/...", Rooms, false, "the demonstration"},
		{"internal/manifest/...", Rooms, false, "prints deployments"},

		{"client/...", Doors, false, "the public library: joins a carrier and an identity"},
		{"cmd/...", Doors, false, "programs: the only place that names two rooms"},
	}
}

// place finds the row of a folder. A test twin is on the floor of the package that it doubles.
func place(dir string) (Package, bool) {
	if isTwin(dir) {
		double := strings.TrimSuffix(dir, "test") // internal/x and internal/xtest
		parent, base := path.Split(dir)
		if parent = strings.TrimSuffix(parent, "/"); path.Base(parent)+"test" == base {
			double = parent // internal/stream/carrier/carriertest
		}
		if p, ok := place(double); ok {
			return p, true
		}
	}
	for _, p := range Packages() {
		if within(dir, []string{p.Path}) {
			return p, true
		}
	}
	return Package{}, false
}

func checkFloors(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go(func(f *File) bool { return governed(f.Path) }) {
		self, ok := place(f.Dir())
		if !ok {
			out = append(out, Breach{f.Path, 0, "package " + f.Dir() +
				" is not in the table of house/floors.go: give it a floor, and say why"})
			continue
		}
		for _, spec := range f.AST.Imports {
			dir, ours := strings.CutPrefix(importPath(spec), Module+"/")
			if !ours {
				continue
			}
			if why := mayImport(f, self, dir); why != "" {
				out = append(out, t.breach(f, spec, "%s", why))
			}
		}
	}
	return out
}

// emptyRows are the rows without a folder.
func emptyRows(t *Tree, rows []Package) []Breach {
	var out []Breach
	for _, p := range rows {
		if !t.folder(strings.TrimSuffix(p.Path, "/...")) {
			out = append(out, Breach{"house/floors.go", 0, "there is no folder for the row " + p.Path + ": delete it"})
		}
	}
	return out
}

// governed reports whether the law of floors applies to a path.
func governed(path string) bool {
	top, _, _ := strings.Cut(path, "/")
	return slices.Contains([]string{"api", "client", "cmd", "internal", "proto"}, top)
}

// mayImport returns the reason why not, or "".
func mayImport(f *File, self Package, dir string) string {
	testing := f.Test() || isTwin(f.Dir())
	if dir == f.Dir() || family(dir) == family(f.Dir()) && !isTwin(dir) {
		return ""
	}
	other, ok := place(dir)
	switch {
	case !ok && !governed(dir):
		return fmt.Sprintf("imports %s, which is not part of the product", dir)
	case !ok:
		return "" // reported at that package
	case isTwin(dir) && !testing:
		return fmt.Sprintf("imports %s: a test twin is for tests", dir)
	case isTwin(dir) && other.Floor <= self.Floor:
		return ""
	case self.Floor == Doors && other.Floor == Doors && strings.HasPrefix(dir, "client"):
		return ""
	case other.Floor < self.Floor:
		return ""
	case other.Floor == self.Floor && (other.Open || testing):
		return ""
	case other.Floor == self.Floor:
		return fmt.Sprintf("imports %s: both are on %s; connect them by a value or a small interface of the consumer",
			dir, self.Floor)
	}
	return fmt.Sprintf("imports %s (%s) from %s: imports go down", dir, other.Floor, self.Floor)
}

// family groups the folders of one row: internal/stream/hub and internal/stream/hub/x.
func family(dir string) string {
	p, ok := place(dir)
	if !ok {
		return dir
	}
	return p.Path
}
