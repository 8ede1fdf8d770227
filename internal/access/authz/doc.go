// SPDX-License-Identifier: Apache-2.0

// Package authz is the hub's access policy in force: it answers requests for dials, names the
// version that answered, and knows the live streams, which it asks about again when the
// policy changes. It also knows the hub's own listeners, which are no targets. It does not
// read files and does not end a stream itself.
package authz
