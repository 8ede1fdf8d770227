// SPDX-License-Identifier: Apache-2.0

package netcheck

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// Relay is a hub whose latency is measured.
type Relay struct {
	Name    string
	Measure func(ctx context.Context) (time.Duration, error)
}

// Options say what is checked, and by which socket.
type Options struct {
	// Send sends a datagram from the socket that is checked: the mesh's own, so that what
	// is found is true of it. What comes back is given to Handle.
	Send    func(to netip.AddrPort, datagram []byte) error
	Sockets []netip.AddrPort // its local endpoints; an unspecified address for all
	Own     []netip.Addr     // addresses of this machine
	Servers []nat.Server
	Relays  []Relay
	Router  func(ctx context.Context) nat.PortMapping // nil: the router is not asked
	// Beside opens another socket, which may write where the one that is checked must not: to a
	// port from which an answer shall come unasked, in the next check, too. nil: it is not asked
	// whether the mapping is another one for another port.
	Beside func(ctx context.Context, handle func(netip.AddrPort, []byte)) (Beside, error)
	Seed   [32]byte // random and secret
}

// Beside is a socket beside the one that is checked.
type Beside interface {
	Send(to netip.AddrPort, datagram []byte) error
	Close() error
}

// OpenBeside opens one at any port.
func OpenBeside(ctx context.Context, handle func(netip.AddrPort, []byte)) (Beside, error) {
	return Open(ctx, 0, handle)
}

// Check is one check of the network.
type Check struct {
	o      Options
	client *nat.Client
	in     chan packet
}

type packet struct {
	from netip.AddrPort
	data []byte
}

// New prepares a check.
func New(o Options) *Check {
	o.Servers = o.Servers[:min(len(o.Servers), limit.STUNServers)]
	o.Relays = o.Relays[:min(len(o.Relays), netcheckRelays)]
	return &Check{o: o, client: nat.NewClient(o.Seed), in: make(chan packet, limit.STUNOpen)}
}

// Handle takes a STUN packet that came to the socket. It never waits: what comes too
// fast is lost, as in a network.
func (c *Check) Handle(from netip.AddrPort, datagram []byte) {
	select {
	case c.in <- packet{from, slices.Clone(datagram)}:
	default:
	}
}

// The parts of a check. Together they fit into limit.NetcheckTime.
const (
	mappingTime   = 2 * time.Second
	filteringTime = 1200 * time.Millisecond
	otherTime     = 1200 * time.Millisecond
)

// Run checks, within limit.NetcheckTime, and says what it means.
func (c *Check) Run(ctx context.Context) nat.Report {
	ctx, cancel := context.WithTimeout(ctx, limit.NetcheckTime)
	defer cancel()
	facts := nat.Facts{Own: c.o.Own, Sockets: c.o.Sockets}
	g := run.NewGroup(ctx)
	if c.o.Router != nil {
		g.Do(func(ctx context.Context) {
			m := c.o.Router(ctx)
			facts.Mapping = &m
		})
	}
	relays := make([]nat.Relay, len(c.o.Relays))
	for i, r := range c.o.Relays {
		g.Do(func(ctx context.Context) { relays[i] = measure(ctx, r) })
	}
	c.stun(ctx, &facts)
	_ = g.Wait() // what they found is in the facts, failures too
	facts.Relays = relays
	return nat.Classify(facts)
}

func measure(ctx context.Context, r Relay) nat.Relay {
	took, err := r.Measure(ctx)
	if err != nil {
		return nat.Relay{Name: r.Name, Why: err.Error()}
	}
	return nat.Relay{Name: r.Name, Latency: took}
}

// question is to a server, or to ourselves by way of our outer endpoint.
type question struct {
	server nat.Server
	wish   nat.Wish
	self   bool
	reply  *nat.Reply
	why    string // there is no reply
	over   bool   // and there will be none
}

func (q *question) asked() nat.Asked {
	if q.reply == nil {
		return nat.Asked{Server: q.server, Why: q.why}
	}
	return nat.Asked{Server: q.server, Mapped: q.reply.Mapped, RTT: q.reply.RTT}
}

// stun asks about the socket, but for one thing: what comes from a server's other port shows
// a filter only as long as nothing was ever sent there, by this check or one before. So what
// that port sees is asked from another socket.
func (c *Check) stun(ctx context.Context, facts *nat.Facts) {
	var plain, others []*question
	for _, s := range c.o.Servers {
		plain = append(plain, &question{server: s})
		others = append(others, &question{server: s, wish: nat.WishOther})
	}
	c.round(ctx, slices.Concat(plain, others), func() bool { return answered(plain) && settled(plain, others) },
		mappingTime)
	for _, q := range plain {
		facts.Asked = append(facts.Asked, q.asked())
	}
	filtering, ports := c.second(others)
	self := selves(plain, facts)
	c.round(ctx, slices.Concat(filtering, self), nil, filteringTime)
	for _, q := range filtering {
		if !q.over { // else it has no other port, whatever it said
			facts.OtherPort = append(facts.OtherPort, q.asked())
		}
	}
	for _, q := range self {
		facts.Hairpin = nat.TriOf(q.reply != nil)
	}
	facts.Beside = c.beside(ctx, ports)
}

// beside asks both ports of servers from another socket what they see of it.
func (c *Check) beside(ctx context.Context, ports []*question) (out []nat.Asked) {
	if len(ports) == 0 || c.o.Beside == nil {
		return nil
	}
	// late answers to the first socket are not its own
	other := New(Options{Seed: sha256.Sum256(append([]byte("beside"), c.o.Seed[:]...))})
	socket, err := c.o.Beside(ctx, other.Handle)
	if err != nil {
		return nil // what it would tell is not known then
	}
	defer socket.Close()
	other.o.Send = socket.Send
	other.round(ctx, ports, nil, otherTime)
	for _, q := range ports {
		out = append(out, q.asked())
	}
	return out
}

// settled reports whether every server that answered the plain question has said
// something of its other port. Servers that know nothing of that may stay silent; the
// time of the round bounds the wait.
func settled(plain, others []*question) bool {
	for i, q := range plain {
		if q.reply != nil && others[i].reply == nil && !others[i].over {
			return false
		}
	}
	return true
}

func answered(qs []*question) bool {
	return !slices.ContainsFunc(qs, func(q *question) bool { return q.reply == nil && !q.over })
}

// second makes the questions to servers that have another port, at the same address: from
// where it answers, and what both ports see.
func (c *Check) second(others []*question) (filtering, ports []*question) {
	for _, q := range others {
		if q.reply == nil || !q.reply.Other.IsValid() || q.reply.Other.Addr() != q.server.Addr.Addr() {
			continue
		}
		other := q.reply.Other
		if slices.ContainsFunc(c.o.Servers, func(s nat.Server) bool { return s.Addr == other }) {
			continue // it was written to
		}
		filtering = append(filtering, &question{server: q.server, wish: nat.WishOtherPort})
		ports = append(ports, &question{server: q.server}, &question{server: nat.Server{Name: q.server.Name, Addr: other}})
	}
	return filtering, ports
}

// selves asks for a way round by our outer endpoint, if there is one that is not our own.
func selves(plain []*question, facts *nat.Facts) []*question {
	for _, q := range plain {
		if q.reply != nil && q.reply.Mapped.Addr().Is4() && !slices.Contains(facts.Own, q.reply.Mapped.Addr()) {
			return []*question{{server: nat.Server{Addr: q.reply.Mapped}, self: true}}
		}
	}
	return nil
}

const noAnswer = "no answer"

// round asks all questions, again where no answer comes, until done (nil: all are
// answered) or the time is over.
func (c *Check) round(ctx context.Context, qs []*question, done func() bool, most time.Duration) {
	if len(qs) == 0 {
		return
	}
	if done == nil {
		done = func() bool { return answered(qs) }
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	const parts = 7 // asked at 0, 1 and 3 of them
	timer := time.NewTimer(most / parts)
	defer timer.Stop()
	c.ask(qs)
	for tries := 1; !done(); {
		select {
		case <-ctx.Done():
			c.takeCome(qs)
			return
		case p := <-c.in:
			c.take(qs, p)
		case <-timer.C:
			if tries++; tries <= limit.STUNTries {
				c.ask(qs)
				timer.Reset(2 * most / parts)
			}
		}
	}
}

func (c *Check) ask(qs []*question) {
	for _, q := range qs {
		if q.reply != nil || q.over {
			continue
		}
		now := time.Now()
		data := c.client.AskWish(q.server.Addr, q.wish, now)
		if q.self {
			data = c.client.AskSelf(q.server.Addr, now)
		}
		q.why = noAnswer
		if err := c.o.Send(q.server.Addr, data); err != nil {
			q.why = fmt.Sprintf("cannot be sent: %v", err)
		}
	}
}

// takeCome takes what has come already: a process that stood still finds its time over and the answers there at once.
func (c *Check) takeCome(qs []*question) {
	for {
		select {
		case p := <-c.in:
			c.take(qs, p)
		default:
			return
		}
	}
}

func (c *Check) take(qs []*question, p packet) {
	reply, err := c.client.Take(p.from, p.data, time.Now())
	for _, q := range qs {
		mine := q.server.Addr == reply.Server && q.wish == reply.Wish && q.self == reply.Hairpin
		switch {
		case !mine || q.reply != nil:
		case err != nil:
			q.why, q.over = err.Error(), true
		case q.wish == nat.WishOtherPort && reply.From == q.server.Addr:
			q.over = true // from the same port as always: no word on the filter
		default:
			q.reply = &reply
		}
	}
}

// Socket is a UDP socket of a check alone, for a machine on which no mesh runs.
type Socket struct {
	conns map[bool]*net.UDPConn // by whether it is of IPv4
	group *run.Group
	once  sync.Once
}

// Open opens a socket for each IP version, at the port, 0 for any. What of STUN comes in
// goes to the function.
func Open(ctx context.Context, port uint16, handle func(netip.AddrPort, []byte)) (*Socket, error) {
	s := &Socket{conns: map[bool]*net.UDPConn{}, group: run.NewGroup(ctx)}
	var first error
	for _, network := range []string{"udp4", "udp6"} {
		pc, err := new(net.ListenConfig).ListenPacket(ctx, network, fmt.Sprintf(":%d", port))
		if err != nil {
			if first == nil {
				first = err
			}
			continue // a machine may have no IPv6, or no IPv4
		}
		conn := pc.(*net.UDPConn)
		s.conns[network == "udp4"] = conn
		s.group.Do(func(context.Context) { read(conn, handle) })
	}
	if len(s.conns) == 0 {
		return nil, first
	}
	return s, nil
}

func read(conn *net.UDPConn, handle func(netip.AddrPort, []byte)) {
	b := make([]byte, limit.STUNMessage+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error, which was read by that
		}
		if nat.IsSTUN(b[:n]) {
			handle(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), b[:n])
		}
	}
}

// Send sends a datagram.
func (s *Socket) Send(to netip.AddrPort, datagram []byte) error {
	conn := s.conns[to.Addr().Is4()]
	if conn == nil {
		return fmt.Errorf("this machine has no socket for %v", to)
	}
	_, err := conn.WriteToUDPAddrPort(datagram, to)
	return err
}

// Local are the socket's endpoints.
func (s *Socket) Local() []netip.AddrPort {
	var out []netip.AddrPort
	for _, conn := range s.conns {
		out = append(out, conn.LocalAddr().(*net.UDPAddr).AddrPort())
	}
	return out
}

// Close closes the socket, and waits for its readers.
func (s *Socket) Close() (err error) {
	s.once.Do(func() {
		for _, conn := range s.conns {
			if e := conn.Close(); e != nil {
				err = e
			}
		}
		if e := s.group.Wait(); e != nil {
			err = e
		}
	})
	return err
}
