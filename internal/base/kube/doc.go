// SPDX-License-Identifier: Apache-2.0

// Package kube reads and writes members at a Kubernetes API server: objects of
// kind Member and the annotations of nodes. It speaks the few calls that this
// takes over net/http (docs/decisions/0015), and gives what it read as
// roster.Said. It decides nothing about members: what is wrong in an object is
// for roster to say, whose word counts too.
//
//	            ┌ follow members ─ list, watch ─┐
//	Source.Run ─┼ follow nodes ─── list, watch ─┼─ books ── out([]roster.Said)
//	            ├ announce ─────── apply ───────┘
//	            └ own node ─────── list, watch ─── Options.OwnNode(Node)
package kube
