// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/link/invite"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// linkJoin are the flags of 'tombolo link join'.
type linkJoin struct {
	kube   kubeFlags
	order  invite.JoinOrder
	said   invite.Said
	image  string
	noMesh bool
	accept []string
}

func newLinkJoinCommand() *cobra.Command {
	j := linkJoin{order: invite.JoinOrder{Namespace: manifest.LinkNamespace}}
	cmd := &cobra.Command{
		Use:   "join LINE|@FILE|-|CLUSTER --image IMAGE",
		Short: "Link this cluster with others, by the line of 'tombolo link token'",
		Args:  exactArgs("LINE"),
		Long: `Links the cluster of the kubeconfig with others. It checks what is given, and that nothing of
somebody else is in the way, before it changes anything. Then it states at the host cluster
what the flags say, applies a controller and the mesh on all nodes here (--no-mesh: nodes
run it themselves, with the secret that is in the Secret tombolo-mesh-secret), and waits
for what is needed until the first packet passes through a tunnel.

The line is given as it is, from a file, or with - from stdin, where others do not see it in
the list of processes. It can be used once. With the name of a cluster that has joined in its
place everything is applied again, with the credentials that are there.

Where only pods reach the host's API server, as through a port of a hub, --server says where
this command does, such as at the end of a 'kubectl port-forward'. The name in the
certificate stays that of the line.

The controller gets an account that writes what is of this cluster only, in the Secret
tombolo-link-host. It never gets a kubeconfig of the host cluster.`,
		Example: `  tombolo link join @west.line --image registry.example/tombolo:v1
  tombolo link join - --image registry.example/tombolo:v1 --network-type gateway --node-elastic-ip a=203.0.113.7
  tombolo link join @west.line --image registry.example/tombolo:v1 --map 10.244.0.0/16=10.64.0.0/16 --dry-run
  tombolo link join @west.line --image registry.example/tombolo:v1 --server https://127.0.0.1:6443
  tombolo link join west --image registry.example/tombolo:v2`,
		RunE: func(cmd *cobra.Command, args []string) error { return j.run(cmd, args[0]) },
	}
	j.kube.register(cmd)
	f := cmd.Flags()
	f.StringVar(&j.image, "image", "", "`IMAGE` of Tombolo, for the controller and the mesh")
	f.StringVar(&j.order.Namespace, "namespace", j.order.Namespace, "`NAMESPACE` of the controller and the mesh")
	f.StringArrayVar(&j.said.NodeElasticIPs, "node-elastic-ip", nil,
		"`NODE=IP`: the public address that a NAT has for this node alone; may be repeated")
	f.StringArrayVar(&j.said.PodCIDRs, "cluster-pod-cidr", nil,
		"`CIDR` of pods, beside those that are learned; may be repeated")
	f.StringArrayVar(&j.said.Maps, "map", nil,
		"`CIDR=CIDR`: a range of this cluster, and the one by which others reach it; may be repeated")
	f.BoolVar(&j.said.ExternalAPI, "use-external-apiserver", false,
		"kube-apiserver is no pod of the cluster: ask it for the range of services")
	f.StringVar(&j.said.NetworkType, "network-type", "", "p2p, or gateway: through chosen nodes; else as the Cluster says")
	f.StringVar(&j.said.CNI, "cni", "", "where ranges of pods are learned; else as the Cluster says, which looks for each")
	f.BoolVar(&j.noMesh, "no-mesh", false, "apply no DaemonSet: nodes run 'tombolo mesh' themselves")
	f.StringArrayVar(&j.accept, "accept", nil,
		"`CIDR` within which ranges of others have to be, in place of the mesh's own list; may be repeated")
	f.StringVar(&j.order.Proxy, "proxy-url", "",
		"`URL` of a proxy (http, https, socks5) to the host cluster, in place of the line's")
	f.StringVar(&j.order.Server, "server", "",
		"`URL` at which this command alone reaches the host's API server; the controller keeps to the line's")
	f.DurationVar(&j.order.Wait, "wait", 2*time.Minute, "how long to wait for the first packet; 0: not at all")
	f.BoolVar(&j.order.DryRun, "dry-run", false, "check everything, and print what would be done")
	offer(cmd, "network-type", invite.NetworkTypes()...)
	offer(cmd, "cni", invite.CNIs()...)
	return cmd
}

func (j *linkJoin) run(cmd *cobra.Command, word string) error {
	spec, err := invite.Spec(j.said)
	if err != nil {
		return err
	}
	if !j.said.Nothing() {
		if j.order.Spec, err = json.Marshal(spec); err != nil {
			return err
		}
	}
	if j.order.Cluster, j.order.Line, err = readLinkLine(cmd, word); err != nil {
		return err
	}
	if j.order.Server != "" && !invite.IsServer(j.order.Server) {
		return usage(fmt.Sprintf("--server %q is no URL of an API server", j.order.Server), "--server https://127.0.0.1:6443")
	}
	if j.image == "" {
		return usage("--image is missing", "--image REGISTRY/tombolo:VERSION, as 'make image' builds it")
	}
	j.order.Mesh = !j.noMesh
	if j.order.Objects, err = j.objects(); err != nil {
		return err
	}
	_, err = j.kube.order(cmd, invite.Order{Join: &j.order})
	return err
}

// readLinkLine reads a line, or the name of a cluster that has joined. It gives the cluster of both.
func readLinkLine(cmd *cobra.Command, word string) (cluster, line string, err error) {
	var data []byte
	switch file, isFile := strings.CutPrefix(word, "@"); {
	case word == "-":
		data, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), invite.MostLine+1))
	case isFile:
		data, err = private.Read(file, invite.MostLine)
	default:
		if name, bad := id.ParseCluster(word); bad == nil {
			return name.String(), "", nil
		}
		data = []byte(word)
	}
	if err != nil {
		return "", "", fault.New(fault.CodeUsage, "the join line cannot be read").Because(err).
			Hint("name a file that only you may read (chmod 600), or - for stdin")
	}
	l, err := invite.ParseLine(string(data))
	return l.Cluster, string(data), err
}

// objects are what the cluster gets, as YAML.
func (j *linkJoin) objects() (string, error) {
	c := manifest.ControllerDefaults()
	c.Namespace, c.Name, c.Image = j.order.Namespace, manifest.LinkController, j.image
	c.Linked, c.HostKubeconfig = true, manifest.LinkHostFile
	c.Config = fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: ControllerConfig
name: %s
features:
  links:
    cluster: %s
    hostKubeconfig: %s
healthListen: ":8449"
`, c.Name, j.order.Cluster, c.HostKubeconfig)
	texts := [][]byte{nil}
	text, err := manifest.Controller(c)
	if err != nil {
		return "", err
	}
	texts = append(texts, text)
	if text, err = manifest.Members(manifest.MembersDefaults()); err != nil {
		return "", err
	}
	texts = append(texts, text)
	if !j.noMesh {
		m := manifest.MeshDefaults()
		m.Namespace, m.Name, m.Image = j.order.Namespace, manifest.LinkMesh, j.image
		m.LinkCluster, m.Accept, m.Secret = j.order.Cluster, j.accept, manifest.LinkMeshSecret
		if text, err = manifest.Mesh(m); err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	return string(bytes.Join(texts, []byte("\n---\n"))), nil
}
