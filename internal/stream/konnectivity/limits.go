// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// The bounds of this package alone.
const (
	// konnectivityData bounds one DATA packet that we send; the reference's
	// own size for the server, well below gRPC's 4 MiB.
	konnectivityData = 32 << 10
	// konnectivityRequest bounds a packet on a stream that has no target yet: a name
	// of 255 bytes and a port. Whoever has not dialled shall not make the hub hold more.
	konnectivityRequest = 4 << 10
	// konnectivityHeld bounds the large packets of one konnectivity socket that have
	// been announced and that their streams to the agents have not taken: sixteen of
	// the largest at a time. Those of at most konnectivityData are not refused for it,
	// which is what kube-apiserver sends: a window lets as much come anyway.
	konnectivityHeld = 64 << 20
	// konnectivityStall is how long a target takes nothing, or a stream whose caller has
	// closed it does not end, until its window is charged.
	konnectivityStall = limit.MemoryLook
)
