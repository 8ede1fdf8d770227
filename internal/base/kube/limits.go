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
	// kubePage is the number of objects in a page of a list, kubePageBytes its greatest
	// size: 100 nodes with 256 KiB of annotations each. A larger page is requested again
	// in smaller ones.
	kubePage, kubePageBytes = 100, 32 << 20
	// kubeObject bounds one object in bytes: twice what etcd keeps by default.
	kubeObject = 3 << 20
	// kubeConfigFile bounds a kubeconfig, and each file that it names.
	kubeConfigFile = 1 << 20
	// kubeMessage bounds what is shown of the API server's messages.
	kubeMessage = 400
	// kubeAnswer is how long the API server may take for a whole answer.
	kubeAnswer = 30 * time.Second
	// kubeWatch is the least duration of a watch; the greatest is twice that, so that
	// those of a thousand nodes do not end at once.
	kubeWatch = 5 * time.Minute
	// kubePing is the silence after which the connection to the API server is pinged,
	// kubePong how long the answer may take.
	kubePing, kubePong = 30 * time.Second, 15 * time.Second
	// kubeRetryFirst and kubeRetryMost bound the wait between two tries to reach the API
	// server, kubeRetryDenied is the wait after a refusal, which an administrator has to fix.
	kubeRetryFirst, kubeRetryMost, kubeRetryDenied = time.Second, time.Minute, 2 * time.Minute
	// kubeSettled is how long a watch must have lasted for the next try to count as the first.
	kubeSettled = 10 * time.Second
	// kubePoll is the interval at which the own Node is read where it may not be watched,
	// and the wait after a failure: 1,000 nodes make 33 to 66 requests a second.
	kubePoll = 30 * time.Second
	// kubeGuard is how often each node checks the API server's policy for Members.
	kubeGuard = 5 * time.Minute
	// kubeWriteGap is the least time between two writes of the own object.
	kubeWriteGap = time.Second
	// kubeGather, plus kubeGatherEach for each known member, is the least time between two
	// reports: with 10,000 members 1.1 s, so that at most 10,000 words a second are copied
	// however many there are.
	kubeGather, kubeGatherEach = 100 * time.Millisecond, 100 * time.Microsecond
	// kubeRenewed is how long the report of a mere renewal may wait, if half of the old
	// lease is left: 10,000 members with the usual lease renew 33 times a second.
	kubeRenewed = time.Minute
	// kubeComplain is how often one invalid object is logged.
	kubeComplain = 10 * time.Minute
)
