// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/manifest"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

// meshManifestFiles are what goes into the objects, from files and standard input.
type meshManifestFiles struct {
	config, join, secret string
	newSecret            bool
}

// newMeshManifestCommand is "tombolo mesh manifest".
func newMeshManifestCommand() *cobra.Command {
	o := manifest.MeshDefaults()
	to := outFlag{mode: 0o600} // it may hold a secret
	var files meshManifestFiles
	cmd := &cobra.Command{
		Use:   "manifest --image IMAGE [--new-secret | --secret-file FILE | --secret NAME]",
		Short: "Print the Kubernetes objects that run the mesh on each node",
		Long: `Print a DaemonSet that runs the mesh on each node of a cluster, for 'kubectl apply -f -'.
The nodes find each other at the API server, which first needs the kind Member and its
policy ('tombolo discovery manifest'); Kubernetes 1.32 or later, which writes into the
token of a pod on which node it is.

With --link-cluster the nodes reach pods and services of linked clusters. All of these
have one secret: make it once with --new-secret, and give it to the others with
--secret-file. Without either of the two it is in a Secret that is there.

The configuration is made of the flags, or is the file given with --config: with
sources.kubernetes: {inCluster: true}, and files of secrets in /etc/tombolo/secret.

The pod is root in the network of its node, with NET_ADMIN and NET_RAW and a read-only
root. It opens /dev/net/tun, and has /proc/sys/net of the node, as the settings of
its own link are below it: the namespace must permit the Pod Security Standard
'privileged'. Keys, certificate and cache stay on the node, in --state-host-path.

While a pod is replaced, for some seconds, its node has no mesh: packets for peers
take the node's own routes, or, with --keep, are lost. A deleted DaemonSet leaves nothing
in the kernel but with --keep.`,
		Example: `  tombolo discovery manifest | kubectl apply -f -
  tombolo mesh manifest --image registry.example/tombolo:v1 --new-secret --link-cluster east --out mesh.yaml
  kubectl apply -f mesh.yaml
  kubectl -n tombolo-system rollout status daemonset/tombolo-mesh
  # of the next cluster, with the same secret
  (umask 077; kubectl -n tombolo-system get secret tombolo-mesh-secret -o 'jsonpath={.data.secret}' |
    base64 -d > cluster.secret)
  tombolo mesh manifest --image registry.example/tombolo:v1 --secret-file cluster.secret --link-cluster west |
    kubectl --context west apply -f -`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := files.read(cmd, &o); err != nil {
				return err
			}
			out, err := manifest.Mesh(o)
			return writeManifest(cmd, to, out, err)
		},
	}
	f := cmd.Flags()
	to.register(cmd, outReplaces)
	f.StringVar(&files.config, "config", "",
		"`FILE` of kind MeshConfig, in place of --link-cluster, --pod-ranges, --accept and --keep")
	f.StringVar(&o.LinkCluster, "link-cluster", "",
		"`CLUSTER` that the nodes belong to, if it is linked with others: the name of its object Cluster")
	f.BoolVar(&o.PodRanges, "pod-ranges", false,
		"nodes of this cluster reach each other's pods by the mesh, in place of what the network plugin does")
	f.StringArrayVar(&o.Accept, "accept", nil,
		"`CIDR` within which ranges of others must be; may be repeated (default private, shared and unique local addresses)")
	f.BoolVar(&o.Keep, "keep", false, "routes and rules stay when a pod ends, and nothing for peers leaves in clear")
	f.StringVar(&files.join, "join", "",
		"`LINE` of 'tombolo token create --node', @FILE that holds it, or - for stdin: the nodes use that hub's relay")
	f.StringVar(&o.Policies, "policies", "", "`NAME` of a ConfigMap of the namespace with an AccessPolicy, policy.yaml")
	f.StringVar(&o.Secret, "secret", "",
		"`NAME` of the Secret with the cluster's secret (default that of --name, and -secret)")
	f.StringArrayVar(&o.SecretKeys, "secret-key", o.SecretKeys, "`KEY` in it; may be repeated, the newest secret first")
	f.BoolVar(&files.newSecret, "new-secret", false, "print the Secret, with a new secret: a new cluster of nodes")
	f.StringVar(&files.secret, "secret-file", "", "print the Secret, with the secret of this `FILE`")
	f.StringVar(&o.StateHostPath, "state-host-path", o.StateHostPath,
		"`DIRECTORY` of each node for keys, certificate and cache")
	f.IntVar(&o.MaxUnavailable, "max-unavailable", o.MaxUnavailable, "`NUMBER` of nodes that an update takes at a time")
	commonManifestFlags(f, &o.Common)
	f.Lookup("memory-limit").Usage += " (default none)"
	return cmd
}

// read reads the files, and makes a secret if one is wanted.
func (m meshManifestFiles) read(cmd *cobra.Command, o *manifest.MeshOptions) error {
	if m.newSecret && m.secret != "" {
		return usage("--new-secret excludes --secret-file", "give one of them: a new secret makes a new cluster of nodes")
	}
	if m.join != "" {
		line, err := readJoin(cmd.InOrStdin(), m.join, "--join")
		if err != nil {
			return err
		}
		parsed, err := trust.ParseJoin(line)
		if err != nil {
			return err
		}
		o.Join = parsed.String()
	}
	var secret seal.Secret
	var err error
	switch {
	case m.newSecret:
		secret, err = seal.NewSecret(rand.Reader)
	case m.secret != "":
		secret, err = discoveryclient.ReadSecret(m.secret)
	}
	if err != nil {
		return err
	}
	if m.newSecret || m.secret != "" {
		o.SecretText = secret.Encode()
	}
	if m.config == "" {
		return nil
	}
	data, err := readConfig(m.config)
	if err != nil {
		return err
	}
	if err := discoveryclient.CheckConfig(m.config, data, meshconf.Check); err != nil {
		return err
	}
	var raw v1alpha1.MeshConfig
	if err := conf.Decode(m.config, data, &raw).Err(); err != nil {
		return err
	}
	o.Config = string(data)
	return o.Suits(raw)
}
