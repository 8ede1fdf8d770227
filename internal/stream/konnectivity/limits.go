// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// The bounds of this package alone.
const (
	// konnectivityData bounds one DATA packet that we send; the reference's
	// own size for the server, well below gRPC's 4 MiB.
	konnectivityData = 32 << 10
	// konnectivityRequest bounds a packet on a stream that has no target yet: a name
	// of 255 bytes and a port. Whoever has not dialled shall not make the hub hold more.
	konnectivityRequest = 4 << 10
	// konnectivityHeld bounds the large packets of one konnectivity socket that have
	// been announced and that their streams to the agents have not taken: sixteen of
	// the largest at a time. Those of at most konnectivityData are not refused for it,
	// which is what kube-apiserver sends: a window lets as much come anyway.
	konnectivityHeld = 64 << 20
	// konnectivityStall is how long a target takes nothing, or a stream whose caller has
	// closed it does not end, until its window is charged.
	konnectivityStall = limit.MemoryLook
	// linkWrite is what a link collects for one write: some packets of data. linkRead is none,
	// since TLS has a buffer of its own.
	linkWrite, linkRead = 128 << 10, 0
	// konnectivityQueue bounds what one connection of a tunnel holds that is not taken.
	konnectivityQueue = 1 << 20
	// queueEntry is what a packet costs beside its payload.
	queueEntry = 256
	// trimBelow is the payload below which a packet that waits has memory of its own: gRPC's buffers are of 16 KiB.
	trimBelow = 4 << 10
	// konnectivityPace is what a reader whose queue is full takes in a second at least, with queueEntry for each
	// packet; the tunnel has the pace of that reader, and the others with it. It is what a line of 2 Mbit/s takes: more
	// would end downloads of people, and with less every answer on the tunnel took many seconds.
	konnectivityPace = 256 << 10
	// konnectivityPatience is how far a reader may be behind that: as long as a reader on a busy machine, or a disk
	// under an upload, may stand still.
	konnectivityPatience = time.Second
	// konnectivityTick is how long a tunnel waits for a reader until it looks again, and what counts of a wait that took
	// longer: when a process has stood still the timer is due before its reader had a chance to read.
	konnectivityTick = 50 * time.Millisecond
	// konnectivityPatienceAll is how far all readers of a tunnel may be together. Beyond it each may be no further than
	// konnectivityPatienceLeast, which a reader that keeps the pace is not: many that stand still do not end the others.
	konnectivityPatienceAll   = 3 * time.Second
	konnectivityPatienceLeast = 100 * time.Millisecond
	// konnectivityForgives is in how much time a tunnel forgets how far its readers were behind: a second in ten.
	konnectivityForgives = 10
	// konnectivityHalf is how long a target may answer a caller that has finished. A caller
	// that is gone looks the same over TCP, and its connection is closed no sooner.
	konnectivityHalf = 10 * time.Second
	// mostControls bounds the packets that wait while a tunnel takes nothing: more than the
	// dials and closes of all of its connections.
	mostControls = 4 * limit.StreamsPerSession
)

const (
	// linkStreams bounds the streams of a connection to agents: each opens one.
	linkStreams = 16
	// mostAgentID bounds an agent's id: the reference's is a UUID, and people give names of nodes.
	mostAgentID = 256
	// mostHolder bounds what people are shown of a holder: a certificate may have many names.
	mostHolder = 256
	// nodeAgents bounds the agent ids with the token of one node: some replicas of a Deployment on the only node there is,
	// twice while it is rolled, and those that a node's crash has left behind.
	nodeAgents = 16
	// nodeTunnels bounds their tunnels: one of each, one with which it looks for further servers, and the same again that
	// were lost and not noticed yet.
	nodeTunnels = 4 * nodeAgents
	// mostTunnels bounds those of a server: two for each of 16,000 nodes.
	mostTunnels = 32_000
	// mostNear bounds the hosts and ranges that an agent says it is near to, each of which costs some hundred bytes: a
	// header has room for thousands.
	mostNear = 256
	// settles is when a tunnel of the reference's wire is one that its agent keeps. One that looks for further servers
	// closes the tunnel to a server that it has already after a round trip.
	settles = 2 * time.Second
	// keepaliveLeast is what the reference takes from agents without ending the connection.
	keepaliveLeast = 30 * time.Second
	// keepaliveTimeout is how long a ping waits for its answer.
	keepaliveTimeout = 10 * time.Second
	// silentAgent is how long a connection to the agents' port may have no stream: an agent opens one at once.
	silentAgent = time.Minute
)

// targetDial bounds an agent's dial, as the reference's own.
const targetDial = 5 * time.Second

// nativeControls bounds the streams that an agent may open on a session: it needs the one for control.
const nativeControls = 1
