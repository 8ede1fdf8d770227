// SPDX-License-Identifier: Apache-2.0

// Package attach keeps a node of the mesh at its hubs: it gets the node its certificate,
// renews it, and holds the connections to the relay (docs/reference/mesh-wire.md section 4).
// It does not decide which peer is reached through a hub, and the mesh keeps running without it.
//
//	            line            accepted             2/3 of the life
//	no identity ────► joining ────────────► joined ◄────────────────► renewing
//	                    │ ▲ backoff, or       │ refused for good
//	                    └─┘ 10 min after      ▼
//	                        a refusal       barred ──another token──► joining
package attach
