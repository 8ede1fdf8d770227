// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// The bounds of this package alone.
const (
	// dialTime bounds a dial in addition to its context: what the far side needs, and the way to it.
	dialTime = limit.Dial + limit.RequestHeaderTime
	// directTime bounds a direct dial, as kube-apiserver's own.
	directTime = 30 * time.Second
	// closeWait is how long a stream that the caller has closed may take to end: as the reference's client waits.
	closeWait = 10 * time.Second
	// trailerWait is how long a refusal waits for the end of its stream, which may have a code.
	trailerWait = time.Second
	// dataPacket bounds the payload of a packet that is sent.
	dataPacket = 32 << 10
	// nameShown bounds a name in an error.
	nameShown = 64
	// keptBuffer bounds the memory that stays with a connection after a large packet.
	keptBuffer = 64 << 10
)
