// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/link/invite"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

func newLinkUnjoinCommand() *cobra.Command {
	var kube kubeFlags
	o := invite.UnjoinOrder{Namespace: manifest.LinkNamespace}
	cmd := &cobra.Command{
		Use: "unjoin CLUSTER", Short: "Unlink a cluster, and remove what its join has made",
		Args: exactArgs("CLUSTER"),
		Long: `Unlinks a cluster. With a kubeconfig of the member it ends the mesh on its nodes, which takes
its routes and rules away, waits for that, and removes what the join has made and what was
copied from other clusters. Kinds and the namespace stay where others use them.

At the host cluster the Cluster, its nodes and its accounts are removed: with --host the
kubeconfig is that of the host cluster, with --host-kubeconfig both sides are done at once.`,
		Example: `  tombolo link unjoin west --host-kubeconfig host.kubeconfig
  tombolo link unjoin west
  tombolo link unjoin west --host --context host`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Cluster = args[0]
			if o.Host && o.HostFiles != "" {
				return usage("--host and --host-kubeconfig exclude each other", "leave one of them out")
			}
			objects, err := manifest.Invitation(o.Cluster)
			if err != nil {
				return err
			}
			o.Objects = string(objects)
			_, err = kube.order(cmd, invite.Order{Unjoin: &o})
			return err
		},
	}
	kube.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Namespace, "namespace", o.Namespace, "`NAMESPACE` of the controller and the mesh")
	f.BoolVar(&o.Host, "host", false, "this is the host cluster: remove there what it has of the cluster")
	f.StringVar(&o.HostFiles, "host-kubeconfig", "", "`FILE` for the host cluster: do that side too")
	f.DurationVar(&o.Wait, "wait", 2*time.Minute, "how long to wait until pods have ended")
	return cmd
}
