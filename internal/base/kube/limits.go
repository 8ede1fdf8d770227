// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"time"
)

// The bounds of this package alone.
const (
	// kubeObjects bounds the objects of a kind that are read: Kubernetes itself promises
	// 5,000 nodes.
	kubeObjects = 10_000
	// kubePage is how many objects are asked for at once, kubePageBytes what their answer
	// may have: 100 nodes that each fill 256 KiB of annotations. A larger one is asked
	// for in smaller pages.
	kubePage, kubePageBytes = 100, 32 << 20
	// kubeObject bounds one object in bytes: twice what etcd keeps by default.
	kubeObject = 3 << 20
	// kubeConfigFile bounds a kubeconfig, and each file that it names.
	kubeConfigFile = 1 << 20
	// kubeMessage bounds what is shown of the API server's own words.
	kubeMessage = 400
	// kubeAnswer is how long the API server may take for all of an answer.
	kubeAnswer = 30 * time.Second
	// kubeWatch is how long a watch is asked for, at least; up to twice that, so that
	// those of a thousand nodes do not end at once.
	kubeWatch = 5 * time.Minute
	// kubePing is after how much silence the connection to the API server is tried,
	// kubePong how long it has for that.
	kubePing, kubePong = 30 * time.Second, 15 * time.Second
	// kubeRetryFirst and kubeRetryMost bound the wait between two tries to reach the API
	// server, kubeRetryDenied is the wait after a refusal, which people have to mend.
	kubeRetryFirst, kubeRetryMost, kubeRetryDenied = time.Second, time.Minute, 2 * time.Minute
	// kubeSettled is how long a watch must have lasted for the next try to count as the first.
	kubeSettled = 10 * time.Second
	// kubePoll is how often the own Node is asked for where it may not be watched, at most,
	// and how long its reading waits after a failure: 1,000 nodes ask 33 to 66 times a second.
	kubePoll = 30 * time.Second
	// kubeGuard is how often each node looks whether the API server has the policy for Members.
	kubeGuard = 5 * time.Minute
	// kubeWriteGap is the least time between two writes of the own object.
	kubeWriteGap = time.Second
	// kubeGather and kubeGatherEach, for each member that is known, are between two times
	// that what the API server says is handed on: with 10,000 members 1.1 s, so that at
	// most 10,000 words a second are copied however many there are.
	kubeGather, kubeGatherEach = 100 * time.Millisecond, 100 * time.Microsecond
	// kubeRenewed is how long a renewal that changes nothing else may wait, if it leaves
	// half of the old lease: 10,000 members with the usual lease renew 33 times a second.
	kubeRenewed = time.Minute
	// kubeComplain is how often one object that cannot be read is told of.
	kubeComplain = 10 * time.Minute
)
