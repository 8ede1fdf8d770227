// SPDX-License-Identifier: Apache-2.0

// Package record writes the hub's records: of streams when they end, of dials that became
// none, of requests and peers that were refused, and of changes by operators. Of floods of
// refusals it writes the first and a sum, and it says what the log has of them. It does not
// decide who is refused.
package record
