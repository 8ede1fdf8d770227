// SPDX-License-Identifier: Apache-2.0

// Package discoveryclient is a node's side of discovery: it announces this node, learns
// of the others from discovery services of both protocols, a file and a cache on
// disk, and merges what they say (docs/reference/discovery.md).
//
//	services ─▶ client (one of a service and secret) ─▶ book ─┐
//	file, Kubernetes ─▶ Source ───────────────────────────────┼─▶ roster.Merge ─▶ Watcher
//	cache ─▶ book ────────────────────────────────────────────┘
//
// It believes only what package seal has verified, decides nothing about
// networks, and dials nobody but services.
package discoveryclient
