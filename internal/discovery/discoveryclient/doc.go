// SPDX-License-Identifier: Apache-2.0

// Package discoveryclient is a node's side of discovery: it announces this node, learns
// of the others from discovery services of both protocols, a file and a cache on
// disk, and merges what they state (docs/reference/discovery.md).
//
//	services ─▶ subscription (a service and a secret) ─▶ book ─┐
//	file, Kubernetes ─▶ Source ────────────────────────────────┼─▶ merger ─▶ Watcher
//	disk cache ─▶ book ────────────────────────────────────────┘
//
// It trusts only what package seal has verified, decides nothing about
// networks, and dials only services.
package discoveryclient
