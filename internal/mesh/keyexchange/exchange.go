// SPDX-License-Identifier: Apache-2.0

package keyexchange

import (
	"crypto/tls"
	"encoding/binary"
	"io"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/secret"
)

// KeyBytes are those of a key: 32, and 4 of salt (RFC 4106 section 8.1, RFC 7634 section 2).
const KeyBytes = 32 + 4

// Key is that of one direction. It prints as nothing.
type Key struct{ secret.Value[[KeyBytes]byte] }

// label names what the exporter is used for (RFC 8446 section 7.5).
const label = "EXPORTER-tombolo-ipsec-1"

// Conn is a connection after its handshake. The caller bounds how long an exchange may take, by a deadline of it.
type Conn interface {
	io.ReadWriter
	ConnectionState() tls.ConnectionState
}

// Tunnel is what an exchange has agreed on: a node receives by In, and sends by Out.
type Tunnel struct {
	In, Out uint32 // SPIs: each is chosen by who receives
	Epoch   uint64
	Life    uint32 // of the other end
}

// Offer is what an initiator wants.
type Offer struct {
	// Epoch is of this exchange, for people and against mistakes; both ends have it.
	Epoch uint64
	// Life is a number that a node draws when it begins to know another one. With another number it knows of no tunnel
	// from before.
	Life uint32
	Raw  bool // ESP without UDP
}

// States are where keys go. What it installs counts at once; an error ends the exchange.
type States interface {
	// Offered is what the other end wants, if it has opened the connection.
	Offered(Offer) error
	// SPI is a new one by which this node can receive.
	SPI() (uint32, error)
	Receive(spi uint32, k Key) error
	Send(Tunnel, Key) error
}

// Initiate is the part of who has opened the connection.
func Initiate(c Conn, own Identity, o Offer, s States) (t Tunnel, err error) {
	x, err := newExchange(c, own, s)
	if err != nil {
		return t, err
	}
	t.Epoch = o.Epoch
	if t.In, err = x.receive(o.Epoch); err != nil {
		return t, err
	}
	first := message{offer, o.Epoch, t.In, o.Life}
	if o.Raw {
		first.kind = offerRaw
	}
	if err := x.write(first); err != nil {
		return t, err
	}
	m, err := x.read(answer, o.Epoch)
	if err != nil {
		return t, err
	}
	if t.Out, t.Life = m.spi, m.life; t.Out == t.In {
		return t, mismatch("both ends receive by SPI %#x", t.In)
	}
	if err := x.send(t); err != nil {
		return t, err
	}
	return t, x.write(message{done, o.Epoch, t.Out, o.Life})
}

// Respond is the part of the other one, whose life is that of Offer. Its error says nothing of whether the initiator
// already sends by the new keys: what was installed stays until the caller removes it.
func Respond(c Conn, own Identity, life uint32, s States) (t Tunnel, err error) {
	x, err := newExchange(c, own, s)
	if err != nil {
		return t, err
	}
	m, err := x.readAny(offer)
	if err != nil {
		return t, err
	}
	t.Epoch, t.Out, t.Life = m.epoch, m.spi, m.life
	if err := s.Offered(Offer{m.epoch, m.life, m.kind == offerRaw}); err != nil {
		return t, err
	}
	if t.In, err = x.receive(t.Epoch); err != nil {
		return t, err
	}
	if t.In == t.Out {
		return t, mismatch("both ends receive by SPI %#x", t.In)
	}
	if err := x.send(t); err != nil {
		return t, err
	}
	if err := x.write(message{answer, t.Epoch, t.In, life}); err != nil {
		return t, err
	}
	m, err = x.read(done, t.Epoch)
	if err == nil && m.spi != t.In {
		err = mismatch("the end of it is about SPI %#x, want %#x", m.spi, t.In)
	}
	return t, err
}

type exchange struct {
	conn      Conn
	states    States
	tls       tls.ConnectionState
	own, peer Pin
}

func newExchange(c Conn, own Identity, s States) (*exchange, error) {
	x := &exchange{conn: c, states: s, tls: c.ConnectionState(), own: own.Pin()}
	var err error
	switch x.peer, err = Peer(x.tls); {
	case err != nil:
		return nil, err
	case x.peer == x.own:
		return nil, fault.New(fault.CodeSelf, "keys for a tunnel").Whyf("the other end has this node's own key")
	case x.tls.Version != tls.VersionTLS13 || x.tls.DidResume ||
		x.tls.NegotiatedProtocol != protocolAES && x.tls.NegotiatedProtocol != protocolChaCha:
		return nil, mismatch("the connection is not a full handshake of TLS 1.3 for %s", protocolAES)
	}
	return x, nil
}

// receive has this node receive by a new SPI.
func (x *exchange) receive(epoch uint64) (uint32, error) {
	spi, err := x.states.SPI()
	if err != nil {
		return 0, err
	}
	k, err := x.key(epoch, spi, x.peer, x.own)
	if err != nil {
		return 0, err
	}
	return spi, x.states.Receive(spi, k)
}

// send has this node send by the peer's SPI.
func (x *exchange) send(t Tunnel) error {
	k, err := x.key(t.Epoch, t.Out, x.own, x.peer)
	if err != nil {
		return err
	}
	return x.states.Send(t, k)
}

// key is that of packets from one end to the other.
func (x *exchange) key(epoch uint64, spi uint32, from, to Pin) (Key, error) {
	context := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, epoch), spi)
	context = append(append(context, from[:]...), to[:]...)
	material, err := x.tls.ExportKeyingMaterial(label, context, KeyBytes)
	if err != nil {
		return Key{}, fault.New(fault.CodeInternal, "keys for a tunnel").Because(err)
	}
	k := [KeyBytes]byte(material)
	clear(material)
	return Key{secret.Hide(&k)}, nil
}

func (x *exchange) write(m message) error {
	if _, err := x.conn.Write(m.bytes()); err != nil {
		return fault.New(fault.CodeSessionLost, "keys for a tunnel").Because(err)
	}
	return nil
}

func (x *exchange) readAny(want kind) (message, error) {
	var b [messageBytes]byte
	if _, err := io.ReadFull(x.conn, b[:]); err != nil {
		return message{}, fault.New(fault.CodeSessionLost, "keys for a tunnel").Because(err)
	}
	return parse(b, want)
}

func (x *exchange) read(want kind, epoch uint64) (message, error) {
	m, err := x.readAny(want)
	if err == nil && m.epoch != epoch {
		err = mismatch("a message is of epoch %d, want %d", m.epoch, epoch)
	}
	return m, err
}

func mismatch(why string, args ...any) *fault.Fault {
	return fault.New(fault.CodeRequest, "keys for a tunnel").Whyf(why, args...).
		Hint("both nodes try again by themselves; if that lasts, compare their versions")
}
