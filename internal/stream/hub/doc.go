// SPDX-License-Identifier: Apache-2.0

// Package hub accepts agents and opens streams through them. It keeps the
// sessions by cluster, picks one for each dial, and serves the frontends by
// which callers come: unix sockets per cluster, HTTP CONNECT with mutual TLS,
// and the admin API. It does not dial a target itself and does not decide what
// an agent may reach.
//
//	kube-apiserver --unix socket--> frontend --dial--> cluster --pick--> session ==TLS==> agent --> target
package hub
