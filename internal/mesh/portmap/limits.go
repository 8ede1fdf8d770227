// SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"time"
)

// The bounds of this package alone.
const (
	// gatewayTime bounds one question to a router.
	gatewayTime = 3 * time.Second
	// gatewayDocument bounds what a router's web server may answer: descriptions of
	// real ones have 10 to 30 KiB.
	gatewayDocument = 128 << 10
	// gatewayAnswers bounds the answers to a search that are read.
	gatewayAnswers = 32
	// gatewayLife is the lifetime that a port mapping is asked for, and gatewayLeast and
	// gatewayMost bound what is believed of the answer: RFC 6886 recommends two hours.
	gatewayLife, gatewayLeast, gatewayMost = 2 * time.Hour, 2 * time.Minute, 24 * time.Hour
	// gatewayEnd bounds the removal of a mapping at the end.
	gatewayEnd = 2 * time.Second
)
