// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/manifest"
	"github.com/tombolo-io/tombolo/internal/vpn"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// newVPNManifestCommand is "tombolo vpn manifest".
func newVPNManifestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Print the Kubernetes objects that run one end",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVPNServerManifestCommand(), newVPNClientManifestCommand())
	return cmd
}

// vpnManifestFiles are what goes into the Secret that is printed.
type vpnManifestFiles struct {
	identities []string
	staticKey  string
}

// newVPNServerManifestCommand is "tombolo vpn manifest server".
func newVPNServerManifestCommand() *cobra.Command {
	o := manifest.VPNServerDefaults()
	to := outFlag{mode: 0o600} // it may hold keys
	var files vpnManifestFiles
	cmd := &cobra.Command{
		Use:   "server --image IMAGE --namespace NAMESPACE --cluster CLUSTER --range CIDR...",
		Short: "Print the Kubernetes objects that run the end beside a control plane",
		Long: `Print the Kubernetes objects that run the end beside a control plane, for
'kubectl apply -f -', in the namespace of the control plane.

Clients dial the Service NAME, port 1194, also while no packets pass: that is how they
begin to. A proxy in front leads to it by the destination
outbound|1194||NAME.NAMESPACE.svc.cluster.local; gateways of Gardener and 'tombolo edge' know
no other NAME than vpn-seed-server, and vpn-seed-server-0 to -4. kube-apiserver connects to
NAME-connect, port 9443, which leads nowhere until packets pass; the certificate must be
for that name (--host).

With --servers 2 there are two, each with a Service of its own, NAME-0 and NAME-1, and
with a transfer network of its own; clients dial both.

Who it is comes from the files of --identity and --static-key, which are printed as a
Secret, or is in a Secret that is there: identity.pem and static.key. With --foreign-ca,
for another CA's certificates, it has tls.crt, tls.key, ca.crt and, for kube-apiserver,
connect-ca.crt, whose CA has made the certificates of those who may CONNECT.

The image must have OpenVPN 2.6 or newer (deploy/image/vpn.Dockerfile). The container
is root with NET_ADMIN, NET_RAW, SETUID, SETGID and KILL; OpenVPN itself is nobody. It
opens /dev/net/tun of the node, so the namespace must permit the Pod Security Standard
'privileged'.`,
		Example: `  tombolo certificate issue --role vpn-server --cluster c1 --name server --host vpn-server-connect \
    --out server.pem
  tombolo vpn key --out static.key
  tombolo vpn manifest server --image registry.example/tombolo-vpn:v1 --namespace c1 --cluster c1 \
    --identity server.pem --static-key static.key --range 10.244.0.0/16 --map 10.250.0.0/16=240.1.0.0/16 |
    kubectl apply -f -`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := files.read(id.RoleVPNServer, &o.VPNOptions); err != nil {
				return err
			}
			o.Check = func(file string, config []byte) error {
				_, err := vpn.ParseServerConfig(file, config)
				return err
			}
			out, err := manifest.VPNServer(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.IntVar(&o.Pods, "servers", o.Pods, "`NUMBER` of servers, 1 or 2")
	f.StringArrayVar(&o.Clients, "client", nil,
		"`NAME` of a client's certificate that may dial in; may be repeated (default each vpn-client of the cluster)")
	f.StringArrayVar(&o.Locals, "local-range", nil,
		"`CIDR` that is used on this side, such as pods: no range of the cluster may overlap it; may be repeated")
	f.BoolVar(&o.Connect, "connect", o.Connect, "serve HTTP CONNECT to kube-apiserver")
	vpnManifestFlags(cmd, &o.VPNOptions, &files)
	f.StringArrayVar(&files.identities, "identity", nil,
		"`FILE` of 'tombolo certificate issue --role vpn-server', printed in a Secret")
	exposedFlags(f, &o.Exposed)
	return cmd
}

// newVPNClientManifestCommand is "tombolo vpn manifest client".
func newVPNClientManifestCommand() *cobra.Command {
	o := manifest.VPNClientDefaults()
	to := outFlag{mode: 0o600} // it may hold keys
	var files vpnManifestFiles
	cmd := &cobra.Command{
		Use:   "client --image IMAGE --cluster CLUSTER --server HOST:PORT... --range CIDR...",
		Short: "Print the Kubernetes objects that run the end in a cluster",
		Long: `Print the Kubernetes objects that run the end in a cluster, for 'kubectl apply -f -'.

It dials each --server, and each is a tunnel of its own: there, --servers 2 goes with two
of them here, in the same order. With --proxy an HTTP proxy leads to them, such as an edge
or Istio's gateway, which is told the --destination of each.

With --clients 2 there are two, each with an identity of its own, on different nodes if
possible: one has the ranges, the other one takes its place.

Who it is comes from the files of --identity and --static-key, which are printed as a
Secret, or is in a Secret that is there: identity.pem and static.key; for two clients
identity-0.pem and identity-1.pem. With --foreign-ca, for another CA's certificates, it has
tls.crt, tls.key and ca.crt.

The image must have OpenVPN 2.6 or newer, and a shell (deploy/image/vpn.Dockerfile). The
container is root with NET_ADMIN, SETUID, SETGID and KILL; OpenVPN itself is nobody. It
opens /dev/net/tun of the node, and a privileged init container has the pod forward
packets: the namespace must permit the Pod Security Standard 'privileged'.`,
		Example: `  tombolo certificate issue --role vpn-client --cluster c1 --name client --out client.pem
  tombolo vpn manifest client --image registry.example/tombolo-vpn:v1 --cluster c1 \
    --identity client.pem --static-key static.key --range 10.244.0.0/16 --map 10.250.0.0/16=240.1.0.0/16 \
    --server vpn.c1.example.com:1194 --proxy edge.example.com:8132 \
    --destination 'outbound|1194||vpn-seed-server.c1.svc.cluster.local' | kubectl --context c1 apply -f -`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := files.read(id.RoleVPNClient, &o.VPNOptions); err != nil {
				return err
			}
			o.Check = func(file string, config []byte) error {
				_, err := vpn.ParseClientConfig(file, config)
				return err
			}
			out, err := manifest.VPNClient(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.IntVar(&o.Pods, "clients", o.Pods, "`NUMBER` of clients, 1 or 2")
	f.StringArrayVar(&o.Servers, "server", nil, "`HOST:PORT` of a server; may be given twice")
	f.StringVar(&o.Proxy, "proxy", "", "`HOST:PORT` of an HTTP proxy that leads to the servers")
	f.StringArrayVar(&o.Destinations, "destination", nil,
		"`TEXT` by which the proxy finds a server, one for each --server, in the same order")
	f.StringVar(&o.Header, "header", "", "`NAME` of the header with it (default Reversed-VPN)")
	f.StringVar(&o.ServerName, "server-name", "",
		"common `NAME` of the server's certificate (default a vpn-server of the cluster; any, with --foreign-ca)")
	vpnManifestFlags(cmd, &o.VPNOptions, &files)
	f.StringArrayVar(&files.identities, "identity", nil,
		"`FILE` of 'tombolo certificate issue --role vpn-client', printed in a Secret; one for each of --clients")
	return cmd
}

// vpnManifestFlags are those of both ends.
func vpnManifestFlags(cmd *cobra.Command, o *manifest.VPNOptions, files *vpnManifestFiles) {
	f := cmd.Flags()
	f.StringVar(&o.Cluster, "cluster", "", "`CLUSTER` that is reached, as in the certificates")
	f.StringArrayVar(&o.Ranges, "range", nil, "`CIDR` of the cluster that is reached; may be repeated")
	f.StringArrayVar(&o.Maps, "map", nil,
		"`CIDR=CIDR`: a range of the cluster, and the one by which the server's side reaches it; may be repeated")
	f.StringArrayVar(&o.Transfer, "transfer", nil, "`CIDR[,CIDR]` between both ends, at most one of each family; once "+
		"for each server (default 192.168.123.0/24 and fd8f:6d53:b97a:1::/96, of families that ranges have; of a second "+
		"server 192.168.124.0/24 and fd8f:6d53:b97a:2::/96)")
	f.IntVar(&o.MTU, "mtu", 0, "`BYTES` of a packet in the tunnel (default 1500, with udp 1400)")
	f.StringVar(&o.Protocol, "protocol", o.Protocol, "`PROTOCOL` of the tunnel: tcp or udp")
	f.StringVar(&o.Handshake, "handshake", o.Handshake,
		"what the static key does, `HOW`: auth signs handshakes, crypt encrypts them, none has no key")
	f.StringVar(&files.staticKey, "static-key", "", "`FILE` of 'tombolo vpn key', printed in a Secret")
	f.StringVar(&o.Secret, "secret", "", "`NAME` of a Secret in the namespace, in place of --identity and --static-key")
	f.BoolVar(&o.ForeignCA, "foreign-ca", false, "the Secret has certificates of another CA")
	offer(cmd, "protocol", openvpn.TCP, openvpn.UDP)
	offer(cmd, "handshake", manifest.HandshakeAuth, manifest.HandshakeCrypt, manifest.HandshakeNone)
	vpnCommonManifestFlags(f, &o.Common)
}

// vpnCommonManifestFlags are those of all manifests, with what is different about a VPN.
func vpnCommonManifestFlags(f *pflag.FlagSet, c *manifest.Common) {
	commonManifestFlags(f, c)
	f.Lookup("image").Usage = "`NAME` of an image with OpenVPN 2.6 or newer"
	f.Lookup("memory-limit").Usage += " (default none)"
}

// read reads the files, which are refused where the program would refuse them.
func (m vpnManifestFiles) read(role id.Role, o *manifest.VPNOptions) error {
	o.Bundles, o.StaticKey = nil, ""
	for _, path := range m.identities {
		cert, _, err := trust.ReadBundle(string(role), path)
		if err != nil {
			return err
		}
		var who id.Identity
		for _, uri := range cert.Leaf.URIs {
			who, _ = id.ParseURI(uri.String()) // what cannot be read is nobody
		}
		if who.Role != role || o.Cluster != "" && who.Cluster.String() != o.Cluster {
			return fault.Newf(fault.CodeUsage, "--identity %s cannot be used", path).Whyf("it is that of %s", who).
				Hint("issue one: tombolo certificate issue --role %s --cluster %s --name NAME --out FILE", role, o.Cluster)
		}
		text, err := private.Read(path, limit.PrivateFile)
		if err != nil {
			return err
		}
		o.Bundles = append(o.Bundles, string(text))
	}
	if m.staticKey == "" {
		return nil
	}
	text, err := private.Read(m.staticKey, limit.KeyFile)
	if err == nil {
		err = openvpn.CheckStaticKey(text)
	}
	if err != nil {
		return fault.Newf(fault.CodeUsage, "--static-key %s cannot be used", m.staticKey).Because(err).
			Hint("make one for both ends: tombolo vpn key --out FILE")
	}
	o.StaticKey = string(text)
	return nil
}
