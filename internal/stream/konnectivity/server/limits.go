// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io/fs"
	"time"
)

const (
	// keepaliveDefault finds an agent that is gone within a minute.
	keepaliveDefault = 30 * time.Second
	// drainLook is how often a server that drains looks whether it is done.
	drainLook = 100 * time.Millisecond
	// handshakes bounds the connections to --server-port that have not done their TLS handshake: beyond it new ones wait,
	// and take the place of one that is silent.
	handshakes = 256
	// firstAgent is how long after the start kube-apiserver waits for an agent: they look for a server each second at
	// first, and each 11 s at the longest.
	firstAgent = 15 * time.Second
	// firstLook is how often it is looked whether one has come.
	firstLook = 20 * time.Millisecond
	// socketMode is what the reference's umask leaves.
	socketMode fs.FileMode = 0o770
	// reviewed is how long the answer about a token counts: agents look for further servers every few seconds.
	reviewed = time.Minute
	// reviewsAtOnce bounds the questions to kube-apiserver that are under way.
	reviewsAtOnce = 32
	// reviews bounds the tokens of which it is known.
	reviews = 4096
)

const (
	// reviewEvery is the least time between two reviews of a connected agent's token, and half as much again the most:
	// 5,000 agents make 17 reviews a second.
	reviewEvery = 4 * time.Minute
	// reviewDoubt is the part of it after which a token that was refused is asked about again: 30 s.
	reviewDoubt = 8
	// reviewRefusals in a row let an agent go: one replica of kube-apiserver may lack a key for a while.
	reviewRefusals = 4
	// reviewMargin is how long before its end a token is not reviewed any more: clocks differ.
	reviewMargin = time.Minute
	// reviewsAgain bounds these questions that are under way.
	reviewsAgain = 8
	// jwtParts are header, claims and signature.
	jwtParts = 3
	// mostClaims bounds the claims of a token: it has come in a header of 16 KiB.
	mostClaims = 16 << 10
	// mostExpiry is the end of the year 9999.
	mostExpiry = 253402300799
)

const (
	// leaseLife and leaseRenew are the reference's.
	leaseLife  = 30 * time.Second
	leaseRenew = 15 * time.Second
	// leaseLeave bounds the last call at the API.
	leaseLeave = 3 * time.Second
)
