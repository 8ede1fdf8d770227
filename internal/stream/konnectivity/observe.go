// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "time"

// Segment is a part of the way of a packet.
type Segment int

// The segments.
const (
	FromClient Segment = iota
	ToClient
	FromAgent
	ToAgent
)

// Segments are their names in the reference's metrics.
func Segments() [4]string { return [...]string{"from_client", "to_client", "from_agent", "to_agent"} }

// The methods of the two services.
const (
	MethodProxy   = "Proxy"
	MethodConnect = "Connect"
)

// Observer counts what happens on tunnels.
type Observer interface {
	PacketObserver
	DialObserver
}

// PacketObserver counts packets and streams.
type PacketObserver interface {
	// Stream is called with +1 when a stream of a method begins, and with -1 when it ends.
	Stream(method string, change int)
	// Packet is called for each packet in a segment; an unknown kind is a number without a name.
	Packet(segment Segment, kind PacketType)
	// Failed is called when a stream fails; kind is below 0 where it was not at a packet.
	Failed(segment Segment, kind PacketType, err error)
	// Wrote is called for each packet, or other write, to a caller, with the time that it took.
	Wrote(time.Duration)
	// Waits is called with +1 when the packets of a segment begin to wait for a connection that
	// does not take its own, and with -1 when they continue.
	Waits(segment Segment, change int)
}

// DialObserver counts dials and connections.
type DialObserver interface {
	// Connections is called with +1 when a connection begins at this end of a tunnel, and with -1 when it ends.
	Connections(change int)
	// Dialled is called for each dial that has led to a connection.
	Dialled(time.Duration)
	// DialFailed is called for each that has not.
	DialFailed(reason string)
}

// Reasons of dials that have failed, at the server.
const (
	NoAgent              = "no_agent"
	ErrorResponse        = "error_response"
	UnrecognizedResponse = "unrecognized_response"
	SendResponse         = "send_rsp" // never: a response is sent by whoever asked
	BackendClose         = "backend_close"
	BackendTimeout       = "backend_dial_timeout"
	FrontendClose        = "frontend_close"
)

// Reasons at the agent.
const (
	TargetTimeout = "timeout"
	TargetUnknown = "unknown"
)

type unobserved struct{}

func (unobserved) Stream(string, int)                {}
func (unobserved) Packet(Segment, PacketType)        {}
func (unobserved) Failed(Segment, PacketType, error) {}
func (unobserved) Waits(Segment, int)                {}
func (unobserved) Wrote(time.Duration)               {}
func (unobserved) Connections(int)                   {}
func (unobserved) Dialled(time.Duration)             {}
func (unobserved) DialFailed(string)                 {}

// String is the name in the protocol.
func (k PacketType) String() string {
	if names := Kinds(); k >= 0 && int(k) < len(names) {
		return names[k]
	}
	return unknownKind
}

// unknownKind stands for a packet of a type that this version does not know, and for none.
const unknownKind = "Unknown"

// Kinds are the names of all packets, by their type.
func Kinds() [7]string {
	return [...]string{"DIAL_REQ", "DIAL_RSP", "CLOSE_REQ", "CLOSE_RSP", "DATA", "DIAL_CLS", "DRAIN"}
}
