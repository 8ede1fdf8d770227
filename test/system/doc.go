// SPDX-License-Identifier: Apache-2.0

// Package system tests hub, agent and frontends together, in one process and
// over real sockets on loopback, as a user meets them: honest callers first,
// then every kind of bad input. It holds tests only and needs no privilege;
// what needs networks of its own is tested in test/lab.
//
// Each hub and agent has an address of its own in 127.0.0.0/8, so that tests
// may run side by side and a hub can come back on its old port.
package system
