// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/route/names"
	"github.com/tombolo-io/tombolo/internal/route/netstack"
	"github.com/tombolo-io/tombolo/internal/stream/datagram"
)

// side is one end of a pipe.
type side struct{ net.Conn }

func (s side) CloseWrite() error  { return s.Close() }
func (s side) Reset(uint32) error { return s.Close() }

// clusterDNS is the server of a cluster: it answers each name with an address that is its length.
type clusterDNS struct {
	t      *testing.T
	opened atomic.Int32
	refuse atomic.Bool
	mute   atomic.Bool
	mu     sync.Mutex
	conns  []net.Conn
}

func (s *clusterDNS) open(context.Context, names.Zone, string) (net.Conn, error) {
	if s.refuse.Load() {
		return nil, fault.New(fault.CodePolicyDenied, "no")
	}
	s.opened.Add(1)
	near, far := net.Pipe()
	s.mu.Lock()
	s.conns = append(s.conns, far)
	s.mu.Unlock()
	go func() {
		var split datagram.Splitter
		buf := make([]byte, 1000)
		for {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			split.Split(buf[:n], func(d []byte) error { s.answer(far, d); return nil })
		}
	}()
	return near, nil
}

func (s *clusterDNS) answer(to net.Conn, query []byte) {
	if s.mute.Load() {
		return
	}
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		s.t.Error(err)
		return
	}
	m.Response = true
	name := m.Questions[0].Name
	m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET},
		Body: &dnsmessage.AResource{A: [4]byte{10, 0, 0, name.Length}}}}
	text, err := m.Pack()
	if err != nil {
		s.t.Error(err)
	}
	junk, _ := datagram.Append(nil, []byte{1})
	text, _ = datagram.Append(junk, text)
	to.Write(text)
}

func (s *clusterDNS) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func newTestResolver(t *testing.T, s *clusterDNS) *resolver {
	return &resolver{
		table: names.Table{Zones: []names.Zone{{Cluster: "c1", Here: "c1.internal.", There: "cluster.local."}},
			There: func(netip.Addr) (string, netip.Addr, bool) { return "", netip.Addr{}, false },
			Here:  func(string, netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }},
		at: []netip.Addr{netip.MustParseAddr("192.0.0.53")}, log: slog.New(slog.DiscardHandler),
		told: telemetry.NewRoute(prometheus.NewRegistry(), telemetry.RouteReadings{
			Open: func() float64 { return 0 }, Lost: func() float64 { return 0 }}),
		open: s.open, group: run.NewGroup(t.Context()), upstreams: map[upstreamKey]*upstream{}, said: map[string]string{},
	}
}

func asks(id uint16, name string) []byte {
	text, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: id},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}).Pack()
	if err != nil {
		panic(err)
	}
	return text
}

// said is an answer in short.
func said(text []byte) string {
	var m dnsmessage.Message
	if err := m.Unpack(text); err != nil {
		return err.Error()
	}
	out := fmt.Sprint(m.ID, " ", strings.TrimPrefix(m.RCode.String(), "RCode"))
	for _, a := range m.Answers {
		out += fmt.Sprint(" ", a.Header.Name, " ", a.Body.(*dnsmessage.AResource).A)
	}
	return out
}

// Many questions share a stream, each has its answer under its own id, and a stream that was lost is opened anew.
func TestResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &clusterDNS{t: t}
		v := newTestResolver(t, s)
		near, far := net.Pipe()
		served := make(chan struct{})
		go func() { defer close(served); v.serve(t.Context(), side{near}, netstack.UDP) }()
		answers := make(chan string, 64)
		go func() {
			var split datagram.Splitter
			buf := make([]byte, 1000)
			for {
				n, err := far.Read(buf)
				if err != nil {
					close(answers)
					return
				}
				split.Split(buf[:n], func(d []byte) error { answers <- said(d); return nil })
			}
		}()
		ask := func(id uint16, name string) {
			text, _ := datagram.Append(nil, asks(id, name))
			if _, err := far.Write(text); err != nil {
				t.Error(err)
			}
		}
		wants := func(want ...string) {
			t.Helper()
			left := map[string]bool{}
			for _, w := range want {
				left[w] = true
			}
			for range want {
				if got := <-answers; !left[got] {
					t.Errorf("answered %q, not one of %q", got, want)
				}
			}
		}
		ask(7, "web.c1.internal.")
		ask(8, "longer.c1.internal.")
		ask(7, "example.com.")
		wants("7 Success web.c1.internal. [10 0 0 18]", "8 Success longer.c1.internal. [10 0 0 21]", "7 Refused")
		if n := s.opened.Load(); n != 1 {
			t.Errorf("%d streams", n)
		}
		s.cut()
		ask(9, "web.c1.internal.")
		wants("9 Success web.c1.internal. [10 0 0 18]")
		s.mute.Store(true)
		ask(10, "web.c1.internal.")
		wants("10 ServerFailure")
		s.mute.Store(false)
		s.cut()
		synctest.Wait()
		s.refuse.Store(true)
		ask(11, "web.c1.internal.")
		wants("11 ServerFailure")
		s.refuse.Store(false)
		ask(12, "web.c1.internal.")
		wants("12 Success web.c1.internal. [10 0 0 18]")
		far.Write([]byte{0, 1, 2}) // no question: no answer
		time.Sleep(askerIdle + time.Second)
		if got, more := <-answers; more {
			t.Errorf("answered %q", got)
		}
		<-served
		v.group.Stop()
		v.group.Wait()
		s.cut()
	})
}

// A server that is silent has a bounded number of questions: one more fails at once.
func TestASilentServerIsAskedNoMoreThanItMay(t *testing.T) {
	s := &clusterDNS{t: t}
	s.mute.Store(true)
	g := run.NewGroup(t.Context())
	u := newUpstream(g, func(ctx context.Context) (net.Conn, error) { return s.open(ctx, names.Zone{}, "udp") })
	for i := range questions {
		u.waits[uint16(i)] = make(chan []byte, 1)
	}
	if _, err := u.ask(t.Context(), asks(7, "web.cluster.local.")); !fault.Has(err, fault.CodeLimit) {
		t.Error(err)
	}
	s.cut()
	g.Stop()
	g.Wait()
}

// A caller that does not read its answers keeps others waiting for nothing.
func TestAnAskerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &clusterDNS{t: t}
		v := newTestResolver(t, s)
		near, far := net.Pipe()
		served := make(chan struct{})
		go func() { defer close(served); v.serve(t.Context(), side{near}, netstack.TCP) }()
		go func() {
			for i := range uint16(3 * askerQuestions) {
				text, _ := datagram.Append(nil, asks(i, "web.c1.internal."))
				if _, err := far.Write(text); err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Second)
		if got := said(v.answer(t.Context(), asks(7, "web.c1.internal."), "udp")); got != "7 Success web.c1.internal. [10 0 0 18]" {
			t.Error(got)
		}
		<-served // it had its time
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		v.group.Stop()
		v.group.Wait()
		s.cut()
	})
}
