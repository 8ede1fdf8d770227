// SPDX-License-Identifier: Apache-2.0

// Package machine reads the addresses and the default gateway of this machine, and
// notices when they change or when the machine slept. It changes nothing and decides
// nothing: which addresses count is decided by package nat.
package machine
