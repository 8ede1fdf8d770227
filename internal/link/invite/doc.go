// SPDX-License-Identifier: Apache-2.0

// Package invite has what is decided when a cluster is linked with others: the line by which it joins, the kubeconfig
// that its controller gets, what people say of it, and what a new link still waits for. It does not talk to an API
// server: package joining of the controller does.
package invite
