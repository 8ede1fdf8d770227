// SPDX-License-Identifier: Apache-2.0

// Package answer decides what a caller's TCP sees of a dial that failed: what it would see if the target were on its
// own network. It sends nothing.
package answer

import "github.com/tombolo-io/tombolo/internal/base/fault"

// Answer is what a caller's SYN is answered with.
type Answer uint8

// The answers, and the error of connect(2) that they become on Linux.
const (
	Silence    Answer = iota // nothing: the caller sends its SYN again, and gives up when it wants to
	Reset                    // RST: ECONNREFUSED
	NoNetwork                // ICMP, no route to the network: ENETUNREACH
	NoHost                   // ICMP, host or address unreachable: EHOSTUNREACH
	Prohibited               // ICMP, administratively prohibited: EHOSTUNREACH with IPv4, EACCES with IPv6
)

func (a Answer) String() string {
	return [...]string{"silence", "reset", "no_network", "no_host", "prohibited"}[a]
}

// Of is the answer for the fault of a dial.
//
//	the target refuses                                   Reset
//	the target cannot be reached from where the agent is NoHost
//	there is no way to the cluster at present            NoNetwork
//	somebody forbids it                                  Prohibited
//	nobody answers in time, or there is no room          Silence: another SYN may find what this one did not
func Of(code fault.Code) Answer {
	switch code {
	case fault.CodeDialRefused, fault.CodeStreamReset:
		return Reset
	case fault.CodeDialUnreachable, fault.CodeDialDNS:
		return NoHost
	case fault.CodeDialTimeout, fault.CodeDialCanceled, fault.CodeLimit:
		return Silence
	}
	switch fault.ClassOf(code) {
	case fault.Denied, fault.Unauthenticated:
		return Prohibited
	case fault.Timeout, fault.Exhausted:
		return Silence
	}
	return NoNetwork
}
