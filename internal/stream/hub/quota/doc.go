// SPDX-License-Identifier: Apache-2.0

// Package quota bounds what each cluster, agent and caller of a hub may use: sessions,
// streams, pending dials, dials a second, bytes a second and unread bytes. It refuses, or
// makes wait, and counts both. It does not end what is open: memory and the hub do.
//
//	configuration ──Parse──► Table ──Of──► Limits of a cluster
//	                                          │
//	dial ──Book.Admit──► Grant ──Start──► stream, whose bytes two Throttles charge
//	          │ the accounts of the caller, the cluster and the agent
//	          └─ refusal: a fault that names the limit
package quota
