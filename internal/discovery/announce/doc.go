// SPDX-License-Identifier: Apache-2.0

// Package announce is the admin API of a node's member, on a unix socket that only
// its user and root reach: how its sources do, whom it knows, and what happens to
// them (docs/reference/discovery.md, "The admin socket").
//
//	discoveryclient.Client ─┬─▶ /v1/status, /v1/members   one answer
//	               └─▶ /v1/watch ─▶ backlog ─▶ reader, or "lost" for one that is too slow
//
// It changes nothing and holds no secrets.
package announce
