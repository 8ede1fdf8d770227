// SPDX-License-Identifier: Apache-2.0

package route

import "time"

// Bounds and timings of this package.
const (
	// connections bounds those that are open, and those whose dial is under way: each costs two descriptors at most.
	connections = 4_096
	// hubPause is for how long a hub that did not answer is tried after the others, and hubPauseMost its longest.
	hubPause     = time.Second
	hubPauseMost = time.Minute
	// pingEvery is after how long without a request a hub of a cluster is asked whether it answers, and pingWait
	// bounds the answer of one.
	pingEvery = 30 * time.Second
	pingWait  = 10 * time.Second
	// nameWait bounds the resolving of a hub's name at the start, and the answer of a cluster's DNS server.
	nameWait = 5 * time.Second
	// askerIdle ends the flow or connection of a caller that asks for names when it has no question for so long;
	// askerQuestions bounds those that it waits for at a time.
	askerIdle      = 30 * time.Second
	askerQuestions = 32
	// questions bounds those that wait for an answer of one server, of the 65,536 ids that there are.
	questions = 8_192
	// tunMTU is that of the link. Its packets are never on a wire: the larger, the fewer.
	tunMTU = 65_520
)
