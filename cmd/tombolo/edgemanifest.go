// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

// newEdgeManifestCommand is "tombolo edge manifest".
func newEdgeManifestCommand() *cobra.Command {
	o := manifest.EdgeDefaults()
	to := outFlag{mode: 0o644}
	cmd := &cobra.Command{
		Use:   "manifest --image IMAGE",
		Short: "Print the Kubernetes objects that run an edge",
		Long: `Print the Kubernetes objects that run an edge, for 'kubectl apply -f -': a Deployment, and
a Service that keeps the clients' addresses (externalTrafficPolicy Local), by which the
policy decides.

Tenants, and policies with --policies, are files in ConfigMaps of the namespace, which are
read again when they change. A ConfigMap holds 1 MiB: about 2,000 tenants. With
--watch-tenants they are objects of kind EdgeTenant, in all namespaces.

Behind a load balancer that hides the clients' addresses, let it send the PROXY protocol
and name its addresses with --proxy-protocol-from.

The pods run as uid 65532, with a read-only root, without capabilities, and without an API
token unless they watch tenants. They listen on ports above 1024, to which the Service leads.`,
		Example: `  tombolo edge manifest --image registry.example/tombolo:v1 --policies tombolo-edge-policies |
    kubectl apply -f -
  kubectl -n tombolo-system create configmap tombolo-edge-tenants --from-file=tenants/
  kubectl -n tombolo-system create configmap tombolo-edge-policies --from-file=policies/
  kubectl -n tombolo-system exec deploy/tombolo-edge -- tombolo edge status`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Objects && !cmd.Flags().Changed("tenants") {
				o.Tenants = ""
			}
			out, err := manifest.Edge(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.StringVar(&o.Tenants, "tenants", o.Tenants, "`NAME` of the ConfigMap with a file for each tenant")
	f.BoolVar(&o.Objects, "watch-tenants", false, "tenants are objects of kind EdgeTenant (and files, with --tenants)")
	f.StringVar(&o.Policies, "policies", "", "`NAME` of the ConfigMap with files of the policy")
	f.IntVar(&o.TLSPort, "port", o.TLSPort, "`PORT` of the Service for TLS")
	f.IntVar(&o.Connect, "connect-port", 0, "`PORT` of the Service for HTTP CONNECT, such as 8132")
	f.StringArrayVar(&o.From, "proxy-protocol-from", nil,
		"`CIDR` of load balancers, which must send the PROXY protocol; may be repeated")
	f.IntVar(&o.Replicas, "replicas", o.Replicas, "`NUMBER` of edges; they share nothing")
	exposedFlags(f, &o.Exposed)
	commonManifestFlags(f, &o.Common)
	drainFlag(f, &o.Common, "live tunnels may continue")
	return cmd
}
