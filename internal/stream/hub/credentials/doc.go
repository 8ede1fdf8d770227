// SPDX-License-Identifier: Apache-2.0

// Package credentials says whose certificates count at this hub: it verifies them, issues
// them for tokens, renewals and the admin API, and knows which serial numbers, names and
// clusters were revoked. It also holds the hub's own certificate. It does not end the
// connections of who was revoked: the hub does.
package credentials
