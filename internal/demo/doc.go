// SPDX-License-Identifier: Apache-2.0

// Package demo plays what Tombolo is for on one machine: a control plane with
// a hub, two clusters behind NAT that use the same addresses, real HTTPS
// backends, dials, refusals, a killed agent and the throughput. It runs the
// tombolo program itself as hub, edge in front of the hub, and agents, each in a
// network namespace (see test/lab), or with Options.Rootless on addresses of the
// loopback. With Options.Mesh it plays nodes behind three kinds of NAT that become
// one network.
//
// It does not configure the machine: nothing leaves the namespaces and one
// temporary directory, and both are gone when Run returns.
package demo
