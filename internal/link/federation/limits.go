// SPDX-License-Identifier: Apache-2.0

package federation

import "time"

const (
	// gather is how long changes are gathered after one that is handed over at once.
	gather = 200 * time.Millisecond
	// keptBytes bounds the file with what is known.
	keptBytes = 64 << 20
)
