// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/tls"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// hub is a hub by the name of its certificate, whichever address leads to it. One
// address at a time has it: a second connection would take the place of the first.
type hub struct {
	name           string
	out            *outbox
	cur            atomic.Pointer[conn] // set with the client's lock
	sent, received flow
	dropped        atomic.Int64

	// With the client's lock.
	holder  *link     // that is connected to it, or about to be
	until   time.Time // without a connection its name counts until then
	refused time.Time // until then it is not asked again, whatever the address
}

func (h *hub) status() Status {
	s := Status{
		Hub: h.name, Sent: h.sent.datagrams.Load(), SentBytes: h.sent.bytes.Load(), Received: h.received.datagrams.Load(),
		ReceivedBytes: h.received.bytes.Load(), Dropped: h.dropped.Load(), Queued: h.out.waiting(),
	}
	if c := h.cur.Load(); c != nil {
		s.Connected, s.Since, s.Draining, s.Address = true, c.since, c.draining.Load(), c.link.address
		s.Observed, s.Rate, s.RTT = c.greeting.Observed, c.greeting.Rate, time.Duration(c.rtt.Load())
	}
	return s
}

// heldError says that an address is of no use now: the hub that it leads to is
// reached by another one, or has just refused us.
type heldError struct {
	hub   string
	until time.Time // zero: until the other one lets go
}

func (e *heldError) Error() string { return "the hub " + e.hub + " is reached by another address" }

// claim is part of the handshake, when the hub has proved its name and knows nothing
// of us yet: nothing happens there if this ends it.
func (c *Client) claim(l *link, s tls.ConnectionState) (*hub, error) {
	if len(s.PeerCertificates) == 0 || len(s.PeerCertificates[0].URIs) != 1 {
		return nil, fault.New(fault.CodeCertInvalid, "the hub's certificate names no identity")
	}
	who, err := id.ParseURI(s.PeerCertificates[0].URIs[0].String())
	if err != nil || who.Role != id.RoleHub {
		return nil, fault.New(fault.CodeCertInvalid, "the hub's certificate names no hub").Because(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hubs[who.Name]
	if h == nil {
		c.forget()
		if len(c.hubs) >= 2*limit.RelayHubs { // a balancer that leads to another one each time
			return nil, fault.New(fault.CodeLimit, "the addresses of hubs lead to too many of them").
				Whyf("%d are known", len(c.hubs))
		}
		h = &hub{name: who.Name, out: newOutbox()}
		c.hubs[h.name] = h
		c.show()
	}
	l.hub = h
	switch {
	case h.holder != nil && h.holder != l:
		return nil, &heldError{hub: h.name}
	case h.refused.After(time.Now()):
		return nil, &heldError{hub: h.name, until: h.refused}
	}
	h.holder = l
	return h, nil
}

// settle leaves a link the hub of its connection and no other. A hub that has refused
// is not asked again by other addresses before the link itself does, after wait.
func (c *Client) settle(l *link, cur *conn, refused bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hubs {
		if h.holder != l || cur != nil && cur.hub == h {
			continue
		}
		h.holder = nil
		if refused {
			h.refused = time.Now().Add(wait)
			continue
		}
		for _, other := range c.links {
			if other != l && other.hub == h {
				other.free()
			}
		}
	}
}
