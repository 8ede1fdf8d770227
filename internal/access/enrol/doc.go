// SPDX-License-Identifier: Apache-2.0

// Package enrol gets an agent or a node its certificate from a hub, renews it, and
// keeps it on disk. It does not decide whether to, and holds no connection.
package enrol
