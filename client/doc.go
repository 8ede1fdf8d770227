// SPDX-License-Identifier: Apache-2.0

// Package client opens connections into a cluster through a Tombolo hub: a
// net.Conn for each target, over HTTP CONNECT with mutual TLS, or over the
// cluster's unix socket on the hub's own machine.
//
//	d := &client.Dialer{Hub: "hub.example:8443", Certificate: "client.crt", Key: "client.key", CA: "ca.crt"}
//	conn, err := d.DialContext(ctx, "tcp", "10.96.0.10:443")
//
// Names are resolved in the cluster. The certificate determines the cluster, and the
// policies of the hub and of its agents determine what can be reached; a refusal is an
// *Error with a code. The package does not retry.
package client
