// SPDX-License-Identifier: Apache-2.0

package netstack

import (
	"errors"
	"io"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/tombolo-io/tombolo/internal/route/answer"
)

// Coming is a connection whose SYN is not answered yet, or a flow of datagrams whose first waits.
type Coming struct {
	Network  Network
	From, To netip.AddrPort // of echo requests the identifier, and wire.EchoPort

	stack   *Stack
	flow    *flow // not of TCP
	request *tcp.ForwarderRequest
	id      stack.TransportEndpointID
	pending *pending
	decided bool
}

// Side is one side of a splice.
type Side interface {
	io.ReadWriteCloser
	CloseWrite() error
	Reset(code uint32) error
}

// Accept answers the SYN, and waits until the connection is established; or it takes the datagrams of a flow.
func (c *Coming) Accept() (Side, error) {
	if c.flow != nil {
		c.decided = true
		return c.flow, nil
	}
	var queue waiter.Queue
	ep, err := c.request.CreateEndpoint(&queue)
	c.end(func() { c.request.Complete(false) })
	if err != nil {
		return nil, failed("the handshake with the caller", err)
	}
	return &Conn{TCPConn: gonet.NewTCPConn(&queue, ep), ep: ep}, nil
}

// Refuse answers the SYN so that the caller's connect fails, or not at all. Datagrams are answered in the same way: by
// a port that is unreachable in place of a reset.
func (c *Coming) Refuse(a answer.Answer) {
	if c.flow != nil {
		c.decided = true
		c.flow.refuse(a)
		return
	}
	c.end(func() { c.request.Complete(a == answer.Reset) })
	if packet := unreachable(c.pending.head, a); packet != nil {
		c.stack.link.send(packet)
	}
}

func (c *Coming) end(complete func()) {
	c.decided = true
	c.stack.decided(c.id, c.pending, complete)
}

// forget drops a connection about which the handler has not decided.
func (c *Coming) forget() {
	if !c.decided {
		c.Refuse(answer.Silence)
	}
}

// Conn is a connection of a caller.
type Conn struct {
	*gonet.TCPConn
	ep   tcpip.Endpoint
	once sync.Once
}

// Read returns io.EOF only after an orderly end.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n == 0 && err == io.EOF && c.ep.LastError() != nil {
		err = errReset
	}
	return n, err
}

var errReset = errors.New("the caller reset the connection")

// CloseWrite ends our direction.
func (c *Conn) CloseWrite() error {
	if err := c.TCPConn.CloseWrite(); err != nil {
		return err
	}
	return nil
}

// Close ends both directions.
func (c *Conn) Close() error {
	c.once.Do(func() { c.TCPConn.Close() })
	return nil
}

// Reset ends the connection with an RST. Whoever reads or writes it ends.
func (c *Conn) Reset(uint32) error {
	c.ep.Abort()
	return c.Close()
}
