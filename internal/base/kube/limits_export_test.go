// SPDX-License-Identifier: Apache-2.0

package kube

// Bounds for the tests of the package.
const (
	KubePage      = kubePage
	KubePageBytes = kubePageBytes
)
