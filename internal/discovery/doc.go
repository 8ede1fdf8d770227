// SPDX-License-Identifier: Apache-2.0

// Package discovery is the service where members find each other. It keeps
// sealed entries under leases and tells watchers of what changes; it can open
// none of them. docs/reference/discovery-wire.md is the protocol, docs/reference/discovery.md the rest.
//
// The Board is what is known, in memory; a Store decides what becomes of an
// update and puts it onto the board; the two protocols read the board and write
// to the store.
package discovery
