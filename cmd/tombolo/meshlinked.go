// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"

	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/link/federation"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// newLinked follows linked clusters, if the configuration says that the node's own is one.
func newLinked(cfg discoveryclient.Config, dial dialer, log *slog.Logger, changed func()) *federation.Federation {
	if cfg.LinkedAs == "" {
		return nil
	}
	server := cfg.Kubernetes.Kubeconfig
	if server == "" {
		server = "in-cluster"
	}
	return federation.New(federation.Options{
		Log: log, Self: reach.Name{Cluster: cfg.LinkedAs, Node: cfg.Kubernetes.Node}, Server: server,
		StateDir: cfg.StateDir, Changed: changed,
		Client: func() *kube.Client {
			return kube.NewClientOf(func() (kube.Access, error) { return kube.Load(cfg.Kubernetes.Kubeconfig, os.Getenv) }, dial)
		},
	})
}
