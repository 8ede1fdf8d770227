// SPDX-License-Identifier: Apache-2.0

// Package enrol gets the certificate of an agent or a node from a hub, renews it, and
// keeps it on disk. It does not decide whether to enrol, and keeps no connection open.
package enrol
