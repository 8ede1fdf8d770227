// SPDX-License-Identifier: Apache-2.0

// Package egress dials by an EgressSelectorConfiguration, the file of kube-apiserver's flag
// --egress-selector-config-file:
//
//	selector, err := egress.Load("/etc/kubernetes/egress.yaml")
//	dialer, err := selector.Dialer(egress.Cluster)
//	conn, err := dialer.DialContext(ctx, "tcp", "10.96.0.10:443")
//
// It reads apiserver.k8s.io/v1beta1, v1alpha1 and the draft of the KEP, and dials directly, by HTTPConnect (unix
// socket, mutual TLS) and by GRPC (konnectivity's packets; unix socket, and mutual TLS in the draft's form). What
// answers may be a Tombolo hub or any other konnectivity server. It does not retry, and does not choose a network for a
// target.
package egress
