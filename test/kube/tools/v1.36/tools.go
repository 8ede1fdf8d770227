// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools names the Kubernetes programs that the test rig builds, so that go.mod and go.sum hold
// what they need. It holds no code of its own; test/kube/tools builds the programs.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
