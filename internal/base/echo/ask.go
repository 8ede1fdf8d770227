// SPDX-License-Identifier: Apache-2.0

package echo

import (
	"context"
	"crypto/rand"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// The headers of a request in bytes: of ICMP, and of IP without options.
const (
	icmpHeader  = 8
	ipv4Header  = 20
	ipv6Header  = 40
	nonce       = 32
	mostPayload = 1<<16 - 1 - ipv6Header - icmpHeader
)

// Ask sends one request, in a packet of size bytes of IP or the least that is possible, and says how long the answer
// took. It waits until ctx ends. Its errors are faults: CodeDialTimeout without an answer, CodeDialUnreachable if
// nothing was sent, because of EMSGSIZE where the packet is larger than the path is known to be.
func Ask(ctx context.Context, to netip.Addr, o Options, size int) (time.Duration, error) {
	conn, err := OpenWith(to, o)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer run.OnDone(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })()
	header := ipv4Header + icmpHeader
	if to.Is6() {
		header = ipv6Header + icmpHeader
	}
	request := make([]byte, sequence+min(max(size-header, nonce), mostPayload))
	request[1] = 1
	if _, err := rand.Read(request[sequence : sequence+nonce]); err != nil { // whoever answers has seen the question
		return 0, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	began := time.Now()
	if _, err := conn.Write(request); err != nil {
		return 0, fault.New(fault.CodeDialUnreachable, "the echo request is not sent").Because(err)
	}
	answer := make([]byte, len(request)+icmpHeader+ipv4Header) // before the headers are taken off
	for {
		n, err := conn.Read(answer)
		if ctx.Err() != nil {
			return 0, fault.New(fault.CodeDialTimeout, "no answer comes").Because(ctx.Err())
		}
		if err != nil {
			return 0, fault.New(fault.CodeDialUnreachable, "no answer comes").Because(err)
		}
		if string(answer[:n]) == string(request) {
			return time.Since(began), nil
		}
	}
}
