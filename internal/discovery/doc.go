// SPDX-License-Identifier: Apache-2.0

// Package discovery is the service where members find each other. It keeps
// sealed entries under leases and reports changes to watchers. It does not
// open the entries, and cannot. docs/reference/discovery-wire.md is the protocol, docs/reference/discovery.md the rest.
//
// The Board has all entries in memory; a Store decides what an update results in and
// puts that onto the board; the two protocols read the board and write to the store.
package discovery
