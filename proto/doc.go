// SPDX-License-Identifier: Apache-2.0

// Package proto holds the messages of the session protocol, generated from
// session.proto (make generate). It does not read or write frames: package wire
// does.
package proto
