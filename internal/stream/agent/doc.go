// SPDX-License-Identifier: Apache-2.0

// Package agent dials out from a private network to a hub and opens the
// connections that the hub asks for, as far as its own rules allow. It accepts
// nothing from the network but probes of its health, and it needs no privilege.
//
//	hub ==TLS==> session --stream--> policy, resolve, policy again, dial --> target
package agent
