// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"

	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/link/federation"
	"github.com/tombolo-io/tombolo/internal/link/nodeconfig"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/link/report"
)

// newLinked follows linked clusters, if the configuration says that the node's own is one.
func newLinked(cfg discoveryclient.Config, dial dialer, log *slog.Logger, changed func()) *federation.Federation {
	if cfg.LinkedAs == "" {
		return nil
	}
	return federation.New(federation.Options{
		Log: log, Self: reach.Name{Cluster: cfg.LinkedAs, Node: cfg.Kubernetes.Node}, Server: serverOf(cfg),
		StateDir: cfg.StateDir, Changed: changed, Client: clientOf(cfg, dial),
	})
}

// newReport writes the NodeConfig of a node whose cluster is linked.
func newReport(cfg discoveryclient.Config, dial dialer, log *slog.Logger,
	facts func() *report.Facts) *nodeconfig.Writer {
	return nodeconfig.New(nodeconfig.Options{
		Log: log, Cluster: cfg.LinkedAs, Node: cfg.Kubernetes.Node, Server: serverOf(cfg), Client: clientOf(cfg, dial),
		Facts: facts,
	})
}

// serverOf names the API server of a node, for people.
func serverOf(cfg discoveryclient.Config) string {
	if cfg.Kubernetes.Kubeconfig == "" {
		return "in-cluster"
	}
	return cfg.Kubernetes.Kubeconfig
}

func clientOf(cfg discoveryclient.Config, dial dialer) func() *kube.Client {
	return func() *kube.Client {
		return kube.NewClientOf(func() (kube.Access, error) { return kube.Load(cfg.Kubernetes.Kubeconfig, os.Getenv) }, dial)
	}
}
