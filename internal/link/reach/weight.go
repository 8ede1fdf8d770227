// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"crypto/sha256"
	"encoding/binary"
)

// weight is how well a node fits a key (highest random weight, Thaler and Ravishankar 1998). All nodes of all versions
// have to come to the same, so the hash is one that does not change.
func weight(node, key string) uint64 {
	sum := sha256.Sum256([]byte(node + "\x00" + key))
	return binary.BigEndian.Uint64(sum[:8])
}
