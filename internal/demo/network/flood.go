// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// maxDatagram is the largest that an echo gives back.
const maxDatagram = 2048

// Echo gives back what comes to the port by UDP and TCP, at any address of the host,
// also those that it gets later. It ends with the network.
func (h *Host) Echo(port uint16) error {
	at := fmt.Sprintf(":%d", port)
	for _, network := range []string{"udp4", "udp6"} {
		conn, err := h.ListenUDP(network, at)
		if err != nil {
			return err
		}
		h.net.start(func() { echoDatagrams(conn) })
	}
	listener, err := h.Listen("tcp", at)
	if err != nil {
		return err
	}
	h.net.start(func() { h.echoStreams(listener) })
	return nil
}

func echoDatagrams(conn *net.UDPConn) {
	packet := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // else an ICMP error of an answer
			_, _ = conn.WriteToUDPAddrPort(packet[:n], from) // what is lost is lost
		}
	}
}

func (h *Host) echoStreams(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		h.net.Keep(conn)
		h.net.start(func() {
			defer h.net.drop(conn)
			_, _ = io.Copy(conn, conn) // until the client has enough
		})
	}
}

// Flood sends numbered packets to an Echo again and again, and notes which of them
// came back. It ends with the network, or by End.
type Flood struct {
	from string
	to   netip.AddrPort
	word []byte
	net  *Network
	conn *net.UDPConn
	done chan struct{}
	run  *run.Group
	once sync.Once

	mu   sync.Mutex
	sent []time.Time
	back []time.Time // zero: not yet
	over bool        // nothing is sent any more
}

// FloodEvery is how often a flood sends: fast enough to count what a change costs,
// and slow enough that it delays nothing.
const FloodEvery = 20 * time.Millisecond

// Flood begins one. Its packets begin with the word, by which a Capture knows them.
func (h *Host) Flood(to netip.AddrPort, word string) (*Flood, error) {
	network := "udp4"
	if to.Addr().Is6() {
		network = "udp6"
	}
	conn, err := h.ListenUDP(network, ":0")
	if err != nil {
		return nil, err
	}
	f := &Flood{from: h.name, to: to, word: []byte(word), net: h.net,
		run: run.NewGroup(h.net.ctx), conn: conn, done: make(chan struct{})}
	f.run.Do(f.send)
	f.run.Do(f.receive)
	return f, nil
}

func (f *Flood) String() string { return f.from + " to " + f.to.Addr().String() }

func (f *Flood) send(context.Context) {
	every := time.NewTicker(FloodEvery)
	defer func() {
		every.Stop()
		f.mu.Lock()
		f.over = true
		f.mu.Unlock()
		f.settle()
	}()
	for number := uint64(0); ; number++ {
		f.mu.Lock()
		f.sent, f.back = append(f.sent, time.Now()), append(f.back, time.Time{})
		f.mu.Unlock()
		packet := binary.BigEndian.AppendUint64(bytes.Clone(f.word), number)
		// What cannot be sent is lost, as what nobody answers.
		if _, err := f.conn.WriteToUDPAddrPort(packet, f.to); errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case <-every.C:
		case <-f.done:
			return
		}
	}
}

func (f *Flood) receive(context.Context) {
	packet := make([]byte, maxDatagram)
	for {
		n, _, err := f.conn.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		body, ours := bytes.CutPrefix(packet[:n], f.word)
		if err != nil || !ours || len(body) != 8 {
			continue
		}
		number := binary.BigEndian.Uint64(body)
		f.mu.Lock()
		if number < uint64(len(f.back)) && f.back[number].IsZero() {
			f.back[number] = time.Now()
		}
		f.mu.Unlock()
		f.settle()
	}
}

// floodLate is for what is still under way at the end of a flood, on a machine under load.
const floodLate = 2 * time.Second

// End stops sending, and waits for what is under way: as long as something is, and no longer
// than floodLate.
func (f *Flood) End() {
	f.once.Do(func() {
		close(f.done)
		timer := time.AfterFunc(floodLate, func() { f.net.drop(f.conn) })
		_ = f.run.Wait()
		timer.Stop()
	})
}

// settle ends a flood that has ended sending, and has nothing under way: what was sent longer
// than floodLate ago is lost.
func (f *Flood) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		return
	}
	for i := len(f.sent) - 1; i >= 0 && time.Since(f.sent[i]) < floodLate; i-- {
		if f.back[i].IsZero() {
			return
		}
	}
	f.net.drop(f.conn)
}

// FirstAfter returns when the first of the packets came back that were sent after a
// moment.
func (f *Flood) FirstAfter(moment time.Time) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var first time.Time
	for i, sent := range f.sent {
		if back := f.back[i]; !sent.Before(moment) && !back.IsZero() && (first.IsZero() || back.Before(first)) {
			first = back
		}
	}
	return first, !first.IsZero()
}

// Loss is what became of packets.
type Loss struct {
	Sent, Lost int
	Rows       int // of packets that were lost one after the other
	// When the first and the last of the lost were sent, after the moment of the question.
	First, Last time.Duration
}

// Lost counts the packets since a moment that have not come back; what is under way
// counts as lost.
func (f *Flood) Lost(since time.Time) Loss {
	f.mu.Lock()
	defer f.mu.Unlock()
	var l Loss
	came := true // the packet before
	for i, sent := range f.sent {
		if sent.Before(since) {
			continue
		}
		l.Sent++
		before := came
		if came = !f.back[i].IsZero(); !came {
			l.Last = sent.Sub(since)
			if l.Lost++; l.Lost == 1 {
				l.First = l.Last
			}
			if before {
				l.Rows++
			}
		}
	}
	return l
}

func (l Loss) String() string {
	if l.Lost == 0 {
		return fmt.Sprintf("none of %d packets lost", l.Sent)
	}
	return fmt.Sprintf("%d of %d packets lost, in %d rows, sent %v to %v after",
		l.Lost, l.Sent, l.Rows, l.First.Round(time.Millisecond), l.Last.Round(time.Millisecond))
}
