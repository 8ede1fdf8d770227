// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

// newDiscoveryManifestCommand is "tombolo discovery manifest".
func newDiscoveryManifestCommand() *cobra.Command {
	o := manifest.MembersDefaults()
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Print what Kubernetes needs for nodes to find each other there",
		Long: `Print the Kubernetes objects by which nodes find each other at the API server,
for 'kubectl apply -f -': the kind Member, a policy that lets each node write the
object of its own name only, and a role for those who are members.

Kubelets are members by their certificates (group system:nodes). Pods are with
--service-account, each for the node that it runs on: Kubernetes 1.32 and later
writes that into their tokens. Nothing in a Member is secret, but everyone who may
read it learns where the nodes are.`,
		Example: `  tombolo discovery manifest | kubectl apply -f -
  tombolo discovery manifest --kubelets=false --service-account kube-system/tombolo-mesh | kubectl apply -f -
  kubectl get members.tombolo.dev -o wide`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := manifest.Members(o)
			return printManifest(cmd.OutOrStdout(), out, err)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Kubelets, "kubelets", o.Kubelets, "kubelets may be members, with their own credentials")
	f.StringArrayVar(&o.ServiceAccounts, "service-account", nil, "pods of the service account `NAMESPACE/NAME` may be members; may be repeated")
	f.BoolVar(&o.NodeAnnotations, "node-annotations", false, "members may list all Nodes, to read the annotations by which Talos nodes find each other")
	return cmd
}
