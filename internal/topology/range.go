// SPDX-License-Identifier: Apache-2.0

package topology

import "net/netip"

// Never gives the reason why a range is nobody's, whoever announces it, or "".
func Never(p netip.Prefix) string { return never(p) }
