// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// newControllerManifestCommand is "tombolo controller manifest".
func newControllerManifestCommand() *cobra.Command {
	o := manifest.ControllerDefaults()
	to := outFlag{mode: 0o644}
	var file string
	cmd := &cobra.Command{
		Use:   "manifest --image IMAGE",
		Short: "Print the Kubernetes objects that run a controller",
		Long: `Print the Kubernetes objects that run a controller, for 'kubectl apply --server-side -f -':
the kinds AccessPolicy and EdgeTenant, a Deployment, the Service and configuration of its
webhooks, and the least rights.

While no replica answers, the API server refuses to create or change an AccessPolicy
(failurePolicy Fail); what is in force stays, and deleting works. An EdgeTenant is accepted
then (Ignore), and judged by those who read it.

The pods run as uid 65532, with a read-only root and without capabilities.`,
		Example: `  tombolo controller manifest --image registry.example/tombolo:v1 | kubectl apply --server-side -f -`,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				data, err := readConfig(file)
				if err != nil {
					return err
				}
				cfg, err := controlconf.Parse(file, data)
				if err != nil {
					return err
				}
				if err := o.Suits(cfg.Name, cfg.Namespace, cfg.WebhookListen, cfg.HealthListen); err != nil {
					return err
				}
				o.Config = string(data)
				o.Shoots = cfg.ShootAdmission != nil
				if l := cfg.Links; l != nil {
					o.LinkHost, o.Linked, o.HostKubeconfig = l.Host, l.Cluster != "", l.HostKubeconfig
				}
				if cfg.Access != nil {
					o.Gateways, o.MeshRoot = cfg.Access.Namespaces(), cfg.Access.RootNamespace
					if g := cfg.Access.Gardener; g != nil {
						o.Gardener, o.Answer = true, g.Answer
					}
				}
			}
			out, err := manifest.Controller(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.StringVar(&file, "config", "",
		"`FILE` of kind ControllerConfig; without one, objects are judged and nothing is written")
	f.StringArrayVar(&o.LinkMembers, "link-member", nil,
		"`CLUSTER` that gets an account in the namespace tombolo-links, with features.links.host; may be repeated")
	f.IntVar(&o.Replicas, "replicas", o.Replicas, "`NUMBER` of controllers, of which one leads")
	commonManifestFlags(f, &o.Common)
	drainFlag(f, &o.Common, "requests of the API server may continue")
	return cmd
}
