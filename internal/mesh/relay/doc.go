// SPDX-License-Identifier: Apache-2.0

// Package relay keeps a node's connections to the relay of its hubs, and passes
// datagrams by them to other nodes of its cluster: docs/reference/mesh-wire.md section 4. It
// does not decide by which hub a peer is reached, and cannot read what it carries.
//
//	       dial, TLS, welcome             drain, new certificate: another
//	away ───────────────────────► in use ─────────────────────────────────► in use
//	  ▲     backoff                 │
//	  └─────────────────────────────┘ end, silence, break
package relay
