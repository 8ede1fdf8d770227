// SPDX-License-Identifier: Apache-2.0

// Package memory keeps the hub within its memory. It measures what is in use, tells the
// garbage collector the limit, refuses more to the clusters that use most when memory is
// short, and cuts their newest and largest streams when it is nearly used up. It also cuts
// streams of clusters that leave too much unread. It does not count what a cluster uses: that
// is quota.
package memory
