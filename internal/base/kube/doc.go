// SPDX-License-Identifier: Apache-2.0

// Package kube reads and writes members at a Kubernetes API server: objects of kind
// Member and annotations of Nodes. It makes the few calls that this takes with net/http
// (docs/decisions/0015), and returns roster.Said values. It decides nothing about
// members: package roster validates them and decides which source counts.
//
//	            ┌ follow members ─ list, watch ─┐
//	Source.Run ─┼ follow nodes ─── list, watch ─┼─ books ── out([]roster.Said)
//	            ├ announce ─────── apply ───────┘
//	            └ own node ─────── list, watch ─── Options.OwnNode(Node)
package kube
