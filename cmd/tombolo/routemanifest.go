// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

// newRouteManifestCommand is "tombolo route manifest".
func newRouteManifestCommand() *cobra.Command {
	o := manifest.RouteDefaults()
	to := outFlag{mode: 0o644}
	cmd := &cobra.Command{
		Use:   "manifest --image IMAGE --cluster CLUSTER --certificate-secret NAME --hub HOST:PORT [-- ARG...]",
		Short: "Print the Kubernetes objects that route in a pod",
		Long: `Print the Kubernetes objects that route the ranges of a cluster in a pod: what runs in the
pod reaches them, and nothing else does.

With --kind sidecar it is added to the pods of a Deployment, StatefulSet or DaemonSet that is
there: a ConfigMap, and a strategic-merge patch of the workload, for 'kubectl patch' or
kustomize. --only prints one of them.

With --kind deployment it is a Deployment with a container of the image --run, for a shell or a
Prometheus; arguments after -- are that container's.

The program is a native sidecar (Kubernetes 1.29 or later): the pod's containers start when
the routes are in place, and it ends after them. It is root with no capability but NET_ADMIN,
and opens /dev/net/tun of the node, so the namespace must permit the Pod Security Standard
'privileged'. The containers beside it need no privilege.

The certificate is a Secret with the file CLUSTER.pem, which is read again when it changes.

With --dns the pod's first nameserver is the program's, at 192.0.0.53. Kubernetes puts none
before its own unless the pod names all of them: give its own with --nameserver.`,
		Example: `  tombolo certificate issue --role route --cluster c1 --name backup --out c1.pem
  kubectl -n shop create secret generic c1-backup --from-file=c1.pem
  tombolo route manifest --kind sidecar --workload backup --namespace shop --image registry.example/tombolo:v1 \
    --cluster c1 --certificate-secret c1-backup --hub hub.example.com:8443 --map 10.244.0.0/16=240.2.0.0/16 \
    --only objects | kubectl apply -f -
  # the same with --only patch
  tombolo route manifest --only patch ... | kubectl -n shop patch deployment backup --patch-file /dev/stdin
  tombolo route manifest --run registry.example/shell:v1 --image registry.example/tombolo:v1 --cluster c1 \
    --certificate-secret c1-backup --hub hub.example.com:8443 --range 10.250.0.0/16 --range 10.251.0.0/16 \
    --dns 10.251.0.10 --zone c1.internal --nameserver 10.96.0.10 -- sleep infinity | kubectl apply -f -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return usage("arguments of the container stand after --", "tombolo route manifest --run IMAGE ... -- ARG...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.RunArgs = args
			if o.Kind == manifest.RouteSidecar && !cmd.Flags().Changed("namespace") {
				o.Namespace = "" // the workload's: nobody but its owner knows
			}
			out, err := manifest.Route(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.StringVar(&o.Kind, "kind", o.Kind, "`KIND`: sidecar, for a workload that is there, or deployment")
	offer(cmd, "kind", manifest.RouteSidecar, manifest.RouteDeployment)
	routeManifestFlags(f, &o)
	offer(cmd, "only", manifest.RouteObjects, manifest.RoutePatch)
	commonManifestFlags(f, &o.Common)
	drainFlag(f, &o.Common, "live connections may continue")
	return cmd
}

func routeManifestFlags(f *pflag.FlagSet, o *manifest.RouteOptions) {
	f.StringVar(&o.Workload, "workload", "",
		"`NAME` of the Deployment that gets the sidecar, or statefulset/NAME or daemonset/NAME")
	f.StringVar(&o.Only, "only", "", "`PART` of a sidecar: objects, for kubectl apply, or patch, for kubectl patch")
	f.StringVar(&o.Run, "run", "", "`IMAGE` of the container that uses the routes of a Deployment")
	f.StringVar(&o.Cluster, "cluster", "", "`CLUSTER` that is reached, as its hubs call it")
	f.StringArrayVar(&o.Hubs, "hub", nil, "`HOST:PORT` of a hub of the cluster; may be repeated")
	f.StringVar(&o.Secret, "certificate-secret", "",
		"`NAME` of a Secret in the namespace with CLUSTER.pem, made by 'tombolo certificate issue --role route'")
	f.StringArrayVar(&o.Ranges, "range", nil, "`CIDR` that is routed to the cluster; may be repeated")
	f.StringArrayVar(&o.Maps, "map", nil,
		"`CIDR=CIDR`: a range of the cluster, and the one by which it is reached in the pod; may be repeated")
	f.StringVar(&o.DNS, "dns", "", "`ADDRESS` of the cluster's DNS server: its names are resolved in the pod")
	f.StringVar(&o.Zone, "zone", "", "`NAME` under which names of the cluster are asked for, such as c1.internal")
	f.StringArrayVar(&o.Nameservers, "nameserver", nil,
		"`ADDRESS` of the pod's own DNS server, for all other names; may be given twice")
	f.StringArrayVar(&o.Searches, "search", nil,
		"`DOMAIN` that the pod searches; may be repeated (default those of its namespace in cluster.local)")
	f.IntVar(&o.HealthPort, "health-port", o.HealthPort, "`PORT` of the probes and metrics, in the pod")
}
