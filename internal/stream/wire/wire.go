// SPDX-License-Identifier: Apache-2.0

// Package wire turns the frames of the session protocol into bytes and back:
// a four-byte big-endian length, then one protobuf message. It bounds what it
// reads and holds no state. It does not know streams, sessions or policy.
package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	pb "github.com/tombolo-io/tombolo/proto"
)

// Version is the newest version of the session protocol that this build speaks.
const Version = 1

// mostTimeout bounds a dial's deadline whatever the peer asks.
const mostTimeout = 2 * time.Minute

const header = 4

// Append appends m as one frame to buf.
func Append(buf []byte, m proto.Message) ([]byte, error) {
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf, err := proto.MarshalOptions{}.MarshalAppend(buf, m)
	if err != nil {
		return nil, fault.New(fault.CodeInternal, "encode a frame").Because(err)
	}
	binary.BigEndian.PutUint32(buf[start:], uint32(len(buf)-start-header))
	return buf, nil
}

// Write writes m as one frame in one call of Write.
func Write(w io.Writer, m proto.Message) error {
	buf, err := Append(nil, m)
	if err != nil {
		return err
	}
	_, err = w.Write(buf)
	return err
}

// Read reads one frame of at most most bytes into m. A clean end before the
// first byte is io.EOF; an end within a frame is io.ErrUnexpectedEOF.
func Read(r io.Reader, most int, m proto.Message) error {
	var head [header]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > uint32(most) {
		return fault.Newf(fault.CodeFrameTooLarge, "a frame announces %d bytes", n).
			Whyf("at most %d are accepted here", most)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return fault.New(fault.CodeFrameInvalid, "a frame cannot be decoded").Because(err)
	}
	return nil
}

// The networks of a dial. Datagrams travel on a stream as package datagram has them.
const (
	NetworkTCP  = "tcp"
	NetworkUDP  = "udp"
	NetworkEcho = "icmp" // echo requests and their answers; the port is EchoPort
)

// EchoPort stands for an echo request wherever a destination has a port (RFC 862): in policies and records.
const EchoPort = 7

// Dial is a dial request as a value.
type Dial struct {
	Network    string        // one of the networks above
	Address    string        // host:port as the caller gave it
	Timeout    time.Duration // from receipt
	Caller     string        // the caller's name, for the log
	EgressType string
	Trace      string         // W3C traceparent, empty or well-formed once it is read
	TraceState string         // W3C tracestate
	Metadata   []reqmeta.Pair // from the caller; nothing is decided upon it
	Ask        bool           // for the addresses before one is dialled
	Peer       Peer           // of a unix socket; the hub's alone, it is not sent
	Source     netip.Addr     // of the caller's connection, not valid for a unix socket; it is not sent
}

// Datagrams reports whether the stream carries datagrams.
func (d Dial) Datagrams() bool { return d.Network == NetworkUDP || d.Network == NetworkEcho }

// Peer is who is at the other end of a unix socket, as the kernel says (SO_PEERCRED).
type Peer struct {
	Known    bool
	UID, GID uint32
	PID      int32
}

// Message renders the request.
func (d Dial) Message() *pb.DialRequest {
	millis := d.Timeout.Milliseconds()
	if d.Timeout > 0 {
		millis = max(millis, 1) // 0 would ask for the default
	}
	m := &pb.DialRequest{
		Network: d.Network, Address: d.Address, TimeoutMillis: millis,
		Caller: d.Caller, EgressType: d.EgressType, Trace: d.Trace, Ask: d.Ask, TraceState: d.TraceState,
	}
	for _, p := range d.Metadata {
		m.Metadata = append(m.Metadata, &pb.Pair{Key: p.Key, Value: p.Value})
	}
	return m
}

// ReadDial reads a dial request and bounds its deadline.
func ReadDial(r io.Reader) (Dial, error) {
	var m pb.DialRequest
	if err := Read(r, limit.DialFrame, &m); err != nil {
		return Dial{}, err
	}
	timeout := limit.Dial
	if millis := m.GetTimeoutMillis(); millis > 0 {
		timeout = time.Duration(min(millis, mostTimeout.Milliseconds())) * time.Millisecond
	}
	d := Dial{
		Network: m.GetNetwork(), Address: m.GetAddress(), Timeout: timeout, Caller: m.GetCaller(),
		EgressType: m.GetEgressType(), Ask: m.GetAsk(),
	}
	d.Trace, d.TraceState = reqmeta.Trace([]string{m.GetTrace()}, []string{m.GetTraceState()})
	for _, p := range m.GetMetadata()[:min(len(m.GetMetadata()), limit.AuditPairs)] {
		d.Metadata = append(d.Metadata, reqmeta.Pair{Key: p.GetKey(), Value: p.GetValue()})
	}
	d.Metadata = reqmeta.Bounded(d.Metadata) // the hub has checked them; we do not rely on it
	return d, nil
}

// ReadReply reads the answer to a dial request: the resolved address or a fault.
// If it was asked for and no fault came, addresses are those to choose from.
func ReadReply(r io.Reader, asked bool) (resolved string, addresses []netip.AddrPort, err error) {
	var m pb.DialReply
	if err := Read(r, limit.DialFrame, &m); err != nil {
		return "", nil, err
	}
	resolved = Clean(m.GetResolved())
	if f := FromFault(m.GetFault()); f != nil {
		return resolved, nil, f
	}
	if !asked {
		return resolved, nil, nil
	}
	addresses, err = readAddresses(m.GetAddresses())
	return resolved, addresses, err
}

// Addresses makes the answer to a request that asks for them.
func Addresses(list []netip.AddrPort) *pb.DialReply { return &pb.DialReply{Addresses: texts(list)} }

// Choice makes the hub's answer to addresses.
func Choice(list []netip.AddrPort) *pb.DialChoice { return &pb.DialChoice{Addresses: texts(list)} }

// ReadChoice reads the hub's answer to addresses; there is one at least.
func ReadChoice(r io.Reader) ([]netip.AddrPort, error) {
	var m pb.DialChoice
	if err := Read(r, limit.DialFrame, &m); err != nil {
		return nil, err
	}
	return readAddresses(m.GetAddresses())
}

func texts(list []netip.AddrPort) []string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = a.String()
	}
	return out
}

func readAddresses(in []string) ([]netip.AddrPort, error) {
	if len(in) == 0 || len(in) > limit.ResolvedAddresses {
		return nil, fault.Newf(fault.CodeFrameInvalid, "a frame has %d addresses", len(in)).
			Whyf("1 to %d are expected", limit.ResolvedAddresses)
	}
	out := make([]netip.AddrPort, len(in))
	for i, text := range in {
		a, err := netip.ParseAddrPort(text)
		if err != nil || a.Addr().Zone() != "" || a.Port() == 0 {
			return nil, fault.New(fault.CodeFrameInvalid, "a frame has an address that cannot be read")
		}
		out[i] = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	}
	return out, nil
}

// Reply makes the answer to a dial request.
func Reply(resolved string, f *fault.Fault) *pb.DialReply {
	return &pb.DialReply{Fault: ToFault(f), Resolved: resolved}
}

// ToFault renders a fault for the peer; nil stays nil. Texts are cut to their bound.
func ToFault(f *fault.Fault) *pb.Fault {
	if f == nil {
		return nil
	}
	return &pb.Fault{Code: string(f.Code), What: Clean(f.What), Why: Clean(f.Why), Next: Clean(f.Next)}
}

// FromFault reads a peer's fault. Its texts are untrusted: they are cut and
// control characters are replaced, so that they cannot forge log lines or headers.
func FromFault(m *pb.Fault) *fault.Fault {
	if m == nil || m.GetCode() == "" {
		return nil
	}
	return &fault.Fault{
		Code: fault.Code(cleanCode(m.GetCode())),
		What: Clean(m.GetWhat()), Why: Clean(m.GetWhy()), Next: Clean(m.GetNext()),
	}
}

// Clean is a text of a peer as it may be shown, of limit.FaultText bytes at most.
func Clean(s string) string { return untrusted.Text(s, limit.FaultText) }

func cleanCode(s string) string {
	if len(s) > 64 {
		s = s[:64]
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, s)
}

// Negotiate picks the newest version that both sides speak.
func Negotiate(low, high uint32) (uint32, *fault.Fault) {
	if low > Version || high < Version {
		return 0, fault.Newf(fault.CodeVersion, "no common version of the session protocol").
			Whyf("the agent speaks %d to %d, the hub speaks %d", low, high, Version).
			Hint("bring hub and agent to releases that are at most one apart")
	}
	return Version, nil
}
