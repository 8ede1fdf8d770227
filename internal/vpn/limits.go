// SPDX-License-Identifier: Apache-2.0

package vpn

import "time"

// Bounds and timings of this package.
const (
	// restartFirst and restartMost are how long it waits before OpenVPN is started again, doubled each time.
	restartFirst, restartMost = time.Second, 15 * time.Second
	// steady is how long OpenVPN has to run until its next end counts as the first one again, after which it is started at
	// once.
	steady = 5 * time.Second
	// stopWait is how long OpenVPN may take to end when it is asked to.
	stopWait = 3 * time.Second
	// attachWait bounds the time until OpenVPN has connected to its management socket.
	attachWait = 10 * time.Second
	// lines bounds what waits to be read of the management interface: the rest waits in its socket.
	lines = 64
	// lastWords are the last bytes that a process printed before it ended, for people.
	lastWords = 2 << 10
	// lastLines are how many lines of them are told.
	lastLines = 3
	// probeEvery is how often a client is asked whether packets pass, and probeWait how long its answer may take.
	probeEvery, probeWait = time.Second, time.Second
	// deadAfter is how long a client may be silent until another one takes its place.
	deadAfter = 3 * time.Second
	// keptFor is how long the ranges are kept for the client that had them before OpenVPN was started again.
	keptFor = 2 * deadAfter
	// readyWithin is how old an answer may be for an end to be ready: three periods of OpenVPN's own pings, which are what
	// a client sees of a server that asks nothing.
	readyWithin = 30 * time.Second
	// clients bounds those of a server at a time: those of one cluster, and as many again while they are replaced.
	clients = 8
	// connections bounds those of a server's OpenVPN, which counts them before their handshake.
	connections = 1_024
	// hung is how long OpenVPN may answer nothing until it is killed.
	hung = 10 * time.Second
	// lookEvery is how often the kernel is looked at: others may remove what is ours.
	lookEvery = 5 * time.Second
	// watchFiles is how often files are looked at that may have been replaced.
	watchFiles = 5 * time.Second
	// addresses bounds those of one server, as a client dials it.
	addresses = 8
	// silentFor is how long a server that asks each second may be silent until its next address is tried.
	silentFor = 5 * time.Second
	// resolveWait is how long the names of servers may take at the start.
	resolveWait = 5 * time.Second
	// connects bounds the CONNECTs that are open at a time.
	connects = 8_192
	// reason bounds what is kept of OpenVPN's words.
	reason = 512
)
