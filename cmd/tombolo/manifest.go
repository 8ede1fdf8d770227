// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// newAgentManifestCommand is "tombolo agent manifest".
func newAgentManifestCommand() *cobra.Command {
	o := manifest.AgentDefaults()
	to := outFlag{mode: 0o600} // it holds a token
	var join string
	cmd := &cobra.Command{
		Use:   "manifest --join LINE|@FILE|- --image IMAGE --allow RULE...|--port NAME=NUMBER...",
		Short: "Print the Kubernetes objects that run an agent",
		Long: `Print the Kubernetes objects that run an agent, for 'kubectl apply -f -'.

The pod runs as uid 65532, with a read-only root, without capabilities and
without an API token. Its identity lives in an emptyDir as long as the pod: each
new pod uses the token once more, so a token for a Deployment needs --uses and
--ttl to match. With --persist each replica keeps its identity in a volume, and
the token is used once per replica.

With --port the agents listen for a port of the hub, and the Service of their name
leads to them: pods reach what the port leads to at NAME.NAMESPACE.svc. Those in
--port-from may connect, and 'kubectl port-forward'.

The output contains the join line. Keep it as you keep the token; --out creates
the file with mode 0600.`,
		Example: `  tombolo token create --cluster c1 -o json | jq -r .join |
    tombolo agent manifest --cluster c1 --join - --image registry.example/tombolo:v1 \
      --allow 10.96.0.0/12 --allow 10.244.0.0/16 | kubectl --context c1 apply -f -`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeAgentManifest(cmd.InOrStdin(), join, &o); err != nil {
				return err
			}
			out, err := manifest.Agent(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.StringVar(&o.Cluster, "cluster", "", "refuse a join line that is for another `CLUSTER`")
	f.StringVar(&join, "join", "", "join `LINE` of 'tombolo token create', @FILE that holds it, or - for stdin")
	f.StringArrayVar(&o.Allow, "allow", nil,
		"what may be reached: `RULE` is CIDR[:ports], name[:ports] or *.suffix[:ports]; may be repeated")
	f.StringArrayVar(&o.Ports, "port", nil,
		"`NAME=NUMBER`: a port of the hub, and that of the Service which leads there; may be repeated")
	f.StringArrayVar(&o.PortFrom, "port-from", nil, "`CIDR` of those who may connect to the ports; may be repeated")
	f.IntVar(&o.Replicas, "replicas", o.Replicas, "`NUMBER` of agents")
	f.StringVar(&o.Persist, "persist", "", "keep each replica's identity in a volume of this `SIZE`, such as 64Mi "+
		"(makes a StatefulSet)")
	commonManifestFlags(f, &o.Common)
	drainFlag(f, &o.Common, "live streams may continue")
	return cmd
}

// completeAgentManifest fills in the join line and checks what other packages know better.
func completeAgentManifest(stdin io.Reader, join string, o *manifest.AgentOptions) error {
	if join != "" {
		line, err := readJoin(stdin, join, "--join")
		if err != nil {
			return err
		}
		parsed, err := trust.ParseJoin(line)
		if err != nil {
			return err
		}
		o.Join = parsed.String()
	}
	if _, problems := policy.CompileAllow(o.Allow); len(problems) > 0 {
		texts := make([]string, len(problems))
		for i, p := range problems {
			texts[i] = fmt.Sprintf("--allow %q: %s", o.Allow[p.Index], p.Message)
		}
		return fault.New(fault.CodeUsage, "the manifest cannot be made").Whyf("%s", strings.Join(texts, "\n  ")).
			Hint("a rule is like 10.96.0.0/12, 10.244.0.0/16:443,8000-8999 or *.svc.cluster.local:443")
	}
	return nil
}

// newHubManifestCommand is "tombolo hub manifest".
func newHubManifestCommand() *cobra.Command {
	o := manifest.HubDefaults()
	to := outFlag{mode: 0o644}
	cmd := &cobra.Command{
		Use:   "manifest --image IMAGE --advertise HOST[:PORT]...",
		Short: "Print the Kubernetes objects that run a hub",
		Long: `Print the Kubernetes objects that run a hub, for 'kubectl apply -f -': one
replica with a volume for its state, a Service for agents, and a ConfigMap with
its configuration, which the hub reloads when it changes.

With --socket-host-path the unix sockets appear in a directory of the node, for
the kube-apiserver pods there. The directory must exist and belong to uid 65532:
  install -d -o 65532 -g 65532 -m 0755 DIRECTORY
A cluster's sockets are then DIRECTORY/clusters/<cluster>/konnectivity.sock and
.../connect.sock.`,
		Example: `  tombolo hub manifest --image registry.example/tombolo:v1 \
    --advertise hub.example.com:8443 --cluster c1 | kubectl apply -f -
  kubectl -n tombolo-system exec tombolo-hub-0 -- tombolo token create --cluster c1`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := manifest.Hub(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.StringArrayVar(&o.Advertise, "advertise", nil, "`HOST[:PORT]` under which agents reach the hub; may be repeated")
	f.StringArrayVar(&o.Clusters, "cluster", nil, "register this `CLUSTER`; may be repeated")
	exposedFlags(f, &o.Exposed)
	f.StringVar(&o.StorageSize, "storage-size", o.StorageSize, "`SIZE` of the volume with CA, tokens and records")
	f.StringVar(&o.SocketHostPath, "socket-host-path", "", "`DIRECTORY` of the node where the unix sockets appear")
	f.StringArrayVar(&o.SocketProtocols, "socket", nil,
		"`PROTOCOL` of the sockets of each --cluster: konnectivity or connect; may be repeated (konnectivity if "+
			"--socket-host-path is given)")
	f.StringVar(&o.SocketMode, "socket-mode", o.SocketMode, "octal `MODE` of the sockets")
	commonManifestFlags(f, &o.Common)
	drainFlag(f, &o.Common, "live streams may continue")
	return cmd
}

// commonManifestFlags are the flags of all manifests.
func commonManifestFlags(f *pflag.FlagSet, c *manifest.Common) {
	f.StringVar(&c.Image, "image", "", "`NAME` of the image")
	f.StringVar(&c.ImagePullPolicy, "image-pull-policy", c.ImagePullPolicy, "`POLICY`: Always, IfNotPresent or Never")
	f.StringVar(&c.ImagePullSecret, "image-pull-secret", "", "`NAME` of a Secret in the namespace for the registry")
	f.StringVar(&c.Namespace, "namespace", c.Namespace, "`NAMESPACE` of all objects")
	f.BoolVar(&c.NoNamespace, "no-namespace", false,
		"do not print the Namespace: it exists, and its labels are someone else's")
	f.StringVar(&c.Name, "name", c.Name, "`NAME` of all objects")
	f.BoolVar(&c.HostNetwork, "host-network", c.HostNetwork, "use the network of the node")
	f.StringArrayVar(&c.NodeSelector, "node-selector", c.NodeSelector,
		"run on nodes with this label, `KEY=VALUE`; may be repeated")
	f.StringArrayVar(&c.Tolerations, "toleration", c.Tolerations,
		"tolerate the `TAINT` KEY[=VALUE][:EFFECT], or * for all; may be repeated")
	f.StringVar(&c.PriorityClass, "priority-class", c.PriorityClass, "`NAME` of a PriorityClass")
	f.StringVar(&c.StorageClass, "storage-class", "", "`NAME` of the StorageClass of volumes")
	f.StringVar(&c.CPURequest, "cpu-request", c.CPURequest, "`QUANTITY` of CPU to reserve")
	f.StringVar(&c.MemoryRequest, "memory-request", c.MemoryRequest, "`QUANTITY` of memory to reserve")
	f.StringVar(&c.MemoryLimit, "memory-limit", c.MemoryLimit, "`QUANTITY` of memory that may not be exceeded")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "`LEVEL` of the logs: debug, info, warn or error")
}

// exposedFlags are of those that a Service leads to.
func exposedFlags(f *pflag.FlagSet, o *manifest.Exposed) {
	f.StringVar(&o.ServiceType, "service-type", o.ServiceType,
		"`TYPE` of the Service: LoadBalancer, NodePort or ClusterIP")
	f.StringArrayVar(&o.ServiceAnnotations, "service-annotation", nil, "`KEY=VALUE` on the Service; may be repeated")
	f.IntVar(&o.NodePort, "node-port", 0, "`PORT` of the Service on every node, instead of one that Kubernetes picks")
}

// drainFlag is of those who drain.
func drainFlag(f *pflag.FlagSet, c *manifest.Common, what string) {
	f.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "how long "+what+" after SIGTERM")
}

// writeManifest writes objects that could be made, or says why they could not.
func writeManifest(cmd *cobra.Command, to outFlag, objects []byte, err error) error {
	if err != nil {
		return err
	}
	return to.write(cmd, func(w io.Writer) error {
		_, err := w.Write(objects)
		return err
	})
}
