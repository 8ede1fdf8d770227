// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

// newDiscoveryManifestCommand is "tombolo discovery manifest".
func newDiscoveryManifestCommand() *cobra.Command {
	o := manifest.MembersDefaults()
	to := outFlag{mode: 0o644}
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Print what Kubernetes needs: for members, for a service, for announcements",
		Long: `Print the Kubernetes objects by which nodes find each other at the API server,
for 'kubectl apply -f -': the kind Member, policies that let each node write the
Member and the NodeConfig of its own name only, and a role for members.

Below it are the manifests of a discovery service and of a DaemonSet that announces
the nodes.

Kubelets are members by their certificates (group system:nodes). Pods are with
--service-account, each for the node that it runs on: Kubernetes 1.32 and later
writes that into their tokens. Nothing in a Member is secret, but every reader
learns where the nodes are.`,
		Example: `  tombolo discovery manifest | kubectl apply -f -
  tombolo discovery manifest --kubelets=false --service-account kube-system/tombolo-mesh | kubectl apply -f -
  kubectl get members.tombolo.dev -o wide`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := manifest.Members(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.BoolVar(&o.Kubelets, "kubelets", o.Kubelets, "kubelets may be members, with their own credentials")
	f.StringArrayVar(&o.ServiceAccounts, "service-account", nil,
		"pods of the service account `NAMESPACE/NAME` may be members; may be repeated")
	f.BoolVar(&o.NodeAnnotations, "node-annotations", false,
		"members may list all Nodes, to read the annotations by which Talos nodes find each other")
	cmd.AddCommand(newMeetManifestCommand(), newAnnounceManifestCommand())
	return cmd
}

// newMeetManifestCommand is "tombolo discovery manifest service".
func newMeetManifestCommand() *cobra.Command {
	o := manifest.MeetDefaults()
	to := outFlag{mode: 0o644}
	cmd := &cobra.Command{
		Use:   "service --image IMAGE --host NAME...",
		Short: "Print the Kubernetes objects that run a discovery service",
		Long: `Print the Kubernetes objects that run a discovery service, for 'kubectl apply -f -'.

Without --etcd it is one replica with a volume for snapshots of the members and
for its CA. With --etcd the members are there, and several replicas share them.
Its certificate is from its own CA (--host), from a Secret (--tls-secret, such as
cert-manager's), or none if something in front terminates TLS (--no-tls).

The pod runs as uid 65532, with a read-only root, without capabilities and
without an API token.`,
		Example: `  tombolo discovery manifest service --image registry.example/tombolo:v1 \
    --host discovery.example.com | kubectl apply -f -
  kubectl -n tombolo-system exec tombolo-discovery-0 -- tombolo discovery status
  tombolo discovery manifest service --image registry.example/tombolo:v1 --tls-secret discovery-tls \
    --etcd https://etcd-0.etcd:2379 --etcd-secret etcd-client --replicas 3 | kubectl apply -f -`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := manifest.Meet(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.StringArrayVar(&o.Hosts, "host", nil, "`NAME` or address under which nodes call the service; may be repeated")
	f.StringVar(&o.TLSSecret, "tls-secret", "", "`NAME` of a Secret with tls.crt and tls.key, in place of its own CA")
	f.BoolVar(&o.NoTLS, "no-tls", false, "clear text, behind what ends TLS")
	f.StringArrayVar(&o.TrustedProxies, "trusted-proxy", nil,
		"address or `NETWORK` whose forwarded-for headers count; may be repeated")
	f.StringArrayVar(&o.Etcd, "etcd", nil, "`URL` of an etcd that keeps the members; may be repeated")
	f.StringVar(&o.EtcdPrefix, "etcd-prefix", "", "`PREFIX` of all keys there")
	f.StringVar(&o.EtcdSecret, "etcd-secret", "", "`NAME` of a Secret with ca.crt, tls.crt and tls.key for etcd")
	f.IntVar(&o.Replicas, "replicas", o.Replicas, "`NUMBER` of services; more than one with --etcd")
	exposedFlags(f, &o.Exposed)
	f.StringVar(&o.StorageSize, "storage-size", o.StorageSize, "`SIZE` of the volume with snapshots and the CA")
	commonManifestFlags(f, &o.Common)
	drainFlag(f, &o.Common, "members may take to leave")
	return cmd
}

// newAnnounceManifestCommand is "tombolo discovery manifest announce".
func newAnnounceManifestCommand() *cobra.Command {
	o := manifest.AnnounceDefaults()
	to := outFlag{mode: 0o644}
	cmd := &cobra.Command{
		Use:   "announce --image IMAGE --secret NAME",
		Short: "Print the Kubernetes objects that announce each node",
		Long: `Print a DaemonSet that announces each node of a cluster, for 'kubectl apply -f -':
at the API server, which first needs the kind Member and its policy
('tombolo discovery manifest'), and at the discovery services of --service.

The pod runs as uid 65532 in the network of its node, with a read-only root and
without capabilities. It may write the Member of its own node only. It keeps the
member's key as long as the pod lives, and says farewell at its end; with
--state-host-path the key stays on the node, whose folder must exist and belong
to uid 65532: install -d -o 65532 -g 65532 -m 0700 DIRECTORY`,
		Example: `  tombolo discovery manifest | kubectl apply -f -
  tombolo discovery secret create - |
    kubectl -n tombolo-system create secret generic cluster --from-file=secret=/dev/stdin
  tombolo discovery manifest announce --image registry.example/tombolo:v1 --secret cluster | kubectl apply -f -
  tombolo discovery manifest announce --image registry.example/tombolo:v1 --secret cluster \
    --service https://discovery.example.com:8446 --pin PIN | kubectl apply -f -`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := manifest.Announce(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.StringVar(&o.Secret, "secret", "", "`NAME` of a Secret of the namespace with the cluster's secret")
	f.StringArrayVar(&o.SecretKeys, "secret-key", o.SecretKeys, "`KEY` in it; may be repeated, the newest secret first")
	f.StringVar(&o.ClusterID, "cluster-id", "", "the cluster's `ID` at services of the older protocol")
	f.StringArrayVar(&o.Services, "service", nil, "`URL` of a discovery service; may be repeated")
	f.StringVar(&o.Protocol, "protocol", o.Protocol, "auto, native or sidero")
	f.StringVar(&o.Pin, "pin", "", "`PIN` of the services' CA, as 'tombolo discovery status' shows it")
	f.StringVar(&o.CAConfig, "ca-config-map", "",
		"`NAME` of a ConfigMap of the namespace with the services' CAs in ca.crt")
	f.BoolVar(&o.Insecure, "insecure", false, "permit http")
	f.BoolVar(&o.Kubernetes, "kubernetes", o.Kubernetes, "nodes find each other at the API server, too")
	f.BoolVar(&o.NodeAnnotations, "node-annotations", false,
		"read the annotations of all Nodes, by which Talos nodes find each other")
	f.StringVar(&o.StateHostPath, "state-host-path", "", "`DIRECTORY` of each node that keeps the member's key")
	commonManifestFlags(f, &o.Common)
	offer(cmd, "protocol", "auto", "native", "sidero")
	return cmd
}
