// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Client keeps the open requests of a socket, so that only answers to them count.
// Its owner calls it from one goroutine.
type Client struct {
	seed  [32]byte // secret: transaction ids come of it
	count uint64
	open  map[ID]request
}

type request struct {
	server  netip.AddrPort
	wish    Wish
	hairpin bool
	sent    time.Time
}

// NewClient makes a client. The seed is random and secret.
func NewClient(seed [32]byte) *Client { return &Client{seed: seed, open: map[ID]request{}} }

// Reply is an answer that counts, or a request of our own that came back.
type Reply struct {
	Server  netip.AddrPort // that was asked
	Mapped  netip.AddrPort // as it saw us
	RTT     time.Duration
	Wish    Wish
	Other   netip.AddrPort // the server's other endpoint, if it says so
	Hairpin bool           // a request to our own mapped endpoint came back to us
	From    netip.AddrPort
}

// random returns bytes that nobody can guess without the seed.
func (c *Client) random() [32]byte {
	c.count++
	return sha256.Sum256(binary.BigEndian.AppendUint64(c.seed[:], c.count))
}

// Ask makes a request to a server.
func (c *Client) Ask(server netip.AddrPort, now time.Time) []byte {
	return c.ask(request{server: server, sent: now})
}

// AskWish makes a request with a wish.
func (c *Client) AskWish(server netip.AddrPort, w Wish, now time.Time) []byte {
	return c.ask(request{server: server, wish: w, sent: now})
}

// AskSelf makes a request to be sent to our own mapped endpoint.
func (c *Client) AskSelf(mapped netip.AddrPort, now time.Time) []byte {
	return c.ask(request{server: mapped, hairpin: true, sent: now})
}

func (c *Client) ask(r request) []byte {
	var oldest ID
	for id, o := range c.open {
		if old, ok := c.open[oldest]; !ok || o.sent.Before(old.sent) {
			oldest = id
		}
	}
	if len(c.open) >= limit.STUNOpen {
		delete(c.open, oldest)
	}
	random := c.random()
	id := ID(random[:12])
	c.open[id] = r
	return Request(id, r.wish)
}

// Forget gives up the requests that were sent before a time.
func (c *Client) Forget(before time.Time) {
	for id, r := range c.open {
		if r.sent.Before(before) {
			delete(c.open, id)
		}
	}
}

// Awaits reports whether a datagram has the id of an open request. It costs next to nothing:
// senders of junk do not know one. Take decides whether it counts.
func (c *Client) Awaits(datagram []byte) bool {
	if !IsSTUN(datagram) {
		return false
	}
	_, open := c.open[ID(datagram[8:header])]
	return open
}

var errUnasked = errors.New("an answer to nothing that was asked")

// Take reads a datagram. Only an answer with the id of an open request, from the address that was
// asked, with an endpoint that can be ours, is a reply. For a server that refuses, or reports an
// impossible endpoint, the error comes with the request.
func (c *Client) Take(from netip.AddrPort, datagram []byte, now time.Time) (Reply, error) {
	m, err := Parse(datagram)
	if err != nil {
		return Reply{}, err
	}
	from = unmap(from)
	r, ok := c.open[m.ID]
	out := Reply{Server: r.server, Wish: r.wish, Other: m.Other, Hairpin: r.hairpin, From: from,
		RTT: max(0, now.Sub(r.sent)), Mapped: m.Mapped}
	switch {
	case !ok || r.hairpin != (m.Class == ClassRequest):
		return Reply{}, errUnasked
	case r.hairpin: // it came the whole way round, whoever its sender seems to be
	case from.Addr() != r.server.Addr(), r.wish != WishOtherPort && from != r.server:
		return Reply{}, fmt.Errorf("%w: %v answers what %v was asked", errUnasked, from, r.server)
	case m.Class == ClassFailure:
		delete(c.open, m.ID)
		return out, fmt.Errorf("%v refuses with code %d", from, m.Code)
	case !CanBeOurs(m.Mapped, r.server):
		delete(c.open, m.ID)
		return out, fmt.Errorf("%v says that it sees %v: that cannot be", from, m.Mapped)
	}
	delete(c.open, m.ID)
	return out, nil
}

// CanBeOurs reports whether a server may see us at an endpoint: an address of the
// family in which it was asked, to which others can send.
func CanBeOurs(mapped, server netip.AddrPort) bool {
	a := mapped.Addr()
	return mapped.IsValid() && mapped.Port() != 0 && a.Is4() == server.Addr().Unmap().Is4() &&
		!a.IsUnspecified() && !a.IsMulticast() && !a.IsLinkLocalUnicast() && a.Zone() == "" &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && a.IsLoopback() == server.Addr().IsLoopback()
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
