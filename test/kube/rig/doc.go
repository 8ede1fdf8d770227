// SPDX-License-Identifier: Apache-2.0

// Package rig runs real Kubernetes clusters in network namespaces: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler in one, kubelet, containerd and kube-proxy with real pods in
// another that sits behind a NAT router, and a Tombolo hub in a third. A firewall in the control plane's
// namespace drops every new connection towards the node, so that only what the agent dialled out can carry
// traffic back. Tests and `make demo-kube` share it.
//
//	             wan 203.0.113.0/24
//	   ┌────────────┬────┴───────┬─────────────────┐
//	┌──┴──┐   ┌─────┴──────┐  ┌──┴──┐ masquerade   │
//	│ hub │   │ c1-cp      │  │c1-nat├──┐       (c2-cp, c2-nat)
//	└─────┘   │ apiserver  │  └─────┘  │ 10.0.0.0/24 (the same in every cluster)
//	   ▲ unix │ etcd, ...  │      ┌────┴────────────────────┐
//	   └──────┤ firewall ✗ │      │ c1-node                 │
//	   sockets└────────────┘      │ kubelet containerd pods │
//	                              └─────────────────────────┘
//
// A node has a mount and a PID namespace of its own. When the process that made the rig dies, however it
// dies, the kernel kills the node's first process and with it every container, shim and mount. What the
// kernel does not remove (namespace names, directories, cgroups) carries the owner's pid and start time in
// its name, as all that package lab makes, and the next rig removes what belongs to dead owners.
//
// Package rig does not build Kubernetes (package tools does) and asserts nothing (the tests do).
package rig
