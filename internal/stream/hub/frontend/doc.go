// SPDX-License-Identifier: Apache-2.0

// Package frontend holds what serves the callers of a cluster: the interface of a frontend,
// and the unix sockets of all clusters with the frontends behind them. It opens and closes
// sockets as the configuration and the admin API ask for. It does not speak a protocol and
// does not dial: hub binds both to a socket.
package frontend
