// SPDX-License-Identifier: Apache-2.0

package stunserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// Off as an address disables the STUN server.
const Off = "none"

// Config has the listen addresses, host:port. Empty is the default, which may fail without
// an error; Off is none.
type Config struct {
	Listen string // default: the number of the main port
	Second string // another port, so that callers learn how their NAT filters; default: SecondDefault
	// Main is the TCP listen address of the program, and SecondDefault the default of
	// Second; empty: none.
	Main, SecondDefault string
}

// Port is the standard one of STUN.
const Port = "3478"

// Configure checks a configuration.
func Configure(c v1alpha1.STUNConfig, add conf.Report) v1alpha1.STUNConfig {
	for field, value := range map[string]string{"stun.listen": c.Listen, "stun.second": c.Second} {
		if value != "" && value != Off {
			add.Listener(field, value)
		}
	}
	if c.Listen == Off && c.Second != "" && c.Second != Off {
		add("stun.second", "%s is given, and stun.listen is %s", c.Second, Off)
	}
	return c
}

// Of is the configuration of the server beside a main port, which is the address in use.
// second is the default number of the second port, at the same address; empty: none.
func Of(c v1alpha1.STUNConfig, main, second string) Config {
	out := Config{Listen: c.Listen, Second: c.Second, Main: main}
	if host, _, err := net.SplitHostPort(cmp.Or(c.Listen, main)); err == nil && second != "" {
		out.SecondDefault = net.JoinHostPort(host, second)
	}
	return out
}

// Why requests were not answered: values of the metric's label.
const (
	dropMalformed = "malformed"
	dropSource    = "source_rate"
	dropTotal     = "total_rate"
	dropSend      = "send"
)

// Server answers on one or two ports.
type Server struct {
	ports   []*sock
	rates   *rates
	metrics *telemetry.STUN
	without []string // default listeners that failed, and why
}

// Open opens the ports. A port in use is an error only if it is configured.
func Open(ctx context.Context, c Config, metrics *telemetry.STUN) (*Server, error) {
	m := &Server{rates: newRates(), metrics: metrics}
	if c.Listen == Off {
		return m, nil
	}
	first, second := c.Listen, c.Second
	if first == "" {
		first = c.Main
	}
	if second == "" {
		second = c.SecondDefault
	}
	if err := m.open(ctx, "stun.listen", first, c.Listen != ""); err != nil {
		return nil, err
	}
	if len(m.ports) == 0 || second == "" || second == Off {
		return m, nil
	}
	if err := m.open(ctx, "stun.second", second, c.Second != ""); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Server) open(ctx context.Context, setting, address string, must bool) error {
	s, err := listen(ctx, address)
	if err == nil {
		m.ports = append(m.ports, s)
		return nil
	}
	if must {
		return fault.Newf(fault.CodeAddressBusy, "%s: %s (UDP) cannot be listened on", setting, address).Because(err).
			Hint("choose another address, or none")
	}
	m.without = append(m.without, setting+": "+err.Error())
	return nil
}

// Status describes a STUN server for operators.
type Status struct{ Listen, Without []string }

// Status returns the open listeners, and the default ones that failed.
func (m *Server) Status() Status {
	out := Status{Listen: []string{}}
	if m == nil {
		return out // nothing runs yet
	}
	out.Without = m.without
	for _, s := range m.ports {
		out.Listen = append(out.Listen, s.conn.LocalAddr().String())
	}
	return out
}

// Close closes the ports of a server that does not run.
func (m *Server) Close() (err error) {
	for _, s := range m.ports {
		err = errors.Join(err, s.conn.Close())
	}
	return err
}

// Run answers until ctx ends.
func (m *Server) Run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	for i, s := range m.ports {
		var other *sock
		if len(m.ports) == 2 {
			other = m.ports[1-i]
		}
		g.Go("STUN", func(ctx context.Context) error { return m.serve(ctx, s, other) })
	}
	return g.Wait()
}

func (m *Server) serve(ctx context.Context, s, other *sock) error {
	stop := run.OnDone(ctx, func() { s.conn.Close() })
	defer stop()
	// One byte more than the longest message, to detect a longer one.
	packet, control := make([]byte, len(nat.Marker)+limit.STUNMessage+1), make([]byte, 128)
	for failures := 0; ; {
		n, oobn, _, from, err := s.conn.ReadMsgUDPAddrPort(packet, control)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// An ICMP error for an answer, or no memory: keep running.
			failures++
			if !run.Wait(ctx, run.Backoff(failures, time.Second, 1)) {
				return nil
			}
			continue
		}
		failures = 0
		m.answer(s, other, from, question{packet[:n], s.to(control[:oobn])})
	}
}

// question is a packet and our address to which it was sent.
type question struct {
	packet []byte
	to     netip.Addr
}

func (m *Server) answer(s, other *sock, from netip.AddrPort, q question) {
	drop := func(why string) { m.metrics.Dropped.WithLabelValues(why).Inc() }
	text, marked := bytes.CutPrefix(q.packet, []byte(nat.Marker))
	ask, err := nat.Parse(text)
	if err != nil || ask.Class != nat.ClassRequest || from.Port() == 0 {
		drop(dropMalformed)
		return
	}
	if why := m.rates.refuse(from.Addr(), time.Now()); why != "" {
		drop(why)
		return
	}
	by, answer := s, nat.Answer(ask, from, other.at(q.to))
	switch {
	case len(ask.Unknown) > 0 || ask.ChangeAddress || ask.ChangePort && other == nil:
		if len(ask.Unknown) == 0 {
			ask.Unknown = []uint16{nat.AttrChangeRequest}
		}
		answer = nat.Refusal(ask)
	case ask.ChangePort:
		by = other
	}
	if marked && answer != nil {
		answer = append([]byte(nat.Marker), answer...)
	}
	if answer == nil || by.send(answer, from, q.to) != nil {
		drop(dropSend)
		return
	}
	m.metrics.Answers.WithLabelValues(family(from.Addr())).Inc()
}

func family(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "ipv4"
	}
	return "ipv6"
}
