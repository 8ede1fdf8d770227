// SPDX-License-Identifier: Apache-2.0

// Package etcd keeps the members of a discovery service in etcd, so that several
// services share them. Each member is a key on an etcd lease; every service
// follows the keys and answers from its own board. It never drops a member on
// its own: etcd decides that a lease has run out, and while etcd is away
// everything stays as it was.
package etcd
