// SPDX-License-Identifier: Apache-2.0

package keyexchange

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func identity(t testing.TB, n byte) Identity {
	t.Helper()
	id, err := NewIdentity(ed25519.NewKeyFromSeed(append(make([]byte, 31), n)))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// pair is a connection between two nodes, after its handshake.
type pair struct {
	a, b       Identity
	conn       [2]*tls.Conn
	shook      [2]error
	client     *tls.Config
	serverKnow func(Pin) bool
}

func newPair(t *testing.T, change func(*pair)) *pair {
	t.Helper()
	p := &pair{a: identity(t, 1), b: identity(t, 2)}
	p.client, p.serverKnow = p.a.Client(p.b.Pin()), func(x Pin) bool { return x == p.a.Pin() }
	if change != nil {
		change(p)
	}
	one, two := wire(t)
	p.conn = [2]*tls.Conn{tls.Client(one, p.client), tls.Server(two, p.b.Server(p.serverKnow))}
	t.Cleanup(func() { one.Close(); two.Close() })
	p.both(t, func(i int) error {
		if err := p.conn[i].SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		if p.shook[i] = p.conn[i].Handshake(); p.shook[i] != nil {
			p.conn[i].NetConn().Close()
		}
		return nil
	})
	return p
}

// wire is a connection with room for what nobody reads, such as an alert.
func wire(t *testing.T) (one, two net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if one, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if two, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return one, two
}

func (p *pair) both(t *testing.T, fn func(int) error) {
	t.Helper()
	g := run.NewGroup(context.Background())
	for i := range 2 {
		g.Go("end", func(context.Context) error { return fn(i) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// states note what they are told, and in which order.
type states struct {
	spi     uint32
	log     *journal
	name    string
	keys    map[uint32]Key
	fail    string
	offered Offer
}

func (s *states) Offered(o Offer) error {
	if s.fail == "offered" {
		return errors.New("it is not wanted")
	}
	s.offered = o
	return nil
}

type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (s *states) SPI() (uint32, error) {
	if s.fail == "spi" {
		return 0, errors.New("no SPI")
	}
	return s.spi, nil
}

func (s *states) Receive(spi uint32, k Key) error { return s.take("receives", spi, k) }
func (s *states) Send(t Tunnel, k Key) error      { return s.take("sends", t.Out, k) }

func (s *states) take(what string, spi uint32, k Key) error {
	if s.fail == what {
		return errors.New("the kernel refuses it")
	}
	s.keys[spi] = k
	s.log.note(s.name + " " + what)
	return nil
}

func TestExchange(t *testing.T) {
	var seen []Key
	for _, raw := range []bool{false, true} {
		p := newPair(t, nil)
		if p.shook != [2]error{} {
			t.Fatal(p.shook)
		}
		var log journal
		all := [2]*states{{spi: 0x1001, log: &log, name: "a", keys: map[uint32]Key{}},
			{spi: 0x2002, log: &log, name: "b", keys: map[uint32]Key{}}}
		var got [2]Tunnel
		p.both(t, func(i int) (err error) {
			if i == 0 {
				got[0], err = Initiate(p.conn[0], p.a, Offer{7, 70, raw}, all[0])
			} else {
				got[1], err = Respond(p.conn[1], p.b, 80, all[1])
			}
			return err
		})
		if got != [2]Tunnel{{In: 0x1001, Out: 0x2002, Epoch: 7, Life: 80}, {In: 0x2002, Out: 0x1001, Epoch: 7, Life: 70}} {
			t.Errorf("%+v", got)
		}
		if want := (Offer{7, 70, raw}); all[0].offered != (Offer{}) || all[1].offered != want {
			t.Errorf("%+v and %+v were offered, want nothing and %+v", all[0].offered, all[1].offered, want)
		}
		if want := "[a receives b receives b sends a sends]"; want != sprint(log.lines) {
			t.Errorf("in the order %v, want %s: nobody sends before the other one can receive", log.lines, want)
		}
		for _, spi := range []uint32{0x1001, 0x2002} {
			one, two := all[0].keys[spi], all[1].keys[spi]
			if one.IsZero() || two.IsZero() || *one.Get() != *two.Get() {
				t.Errorf("both ends have different keys for %#x", spi)
			}
			seen = append(seen, one)
		}
		if s := p.conn[0].ConnectionState(); s.CurveID != tls.X25519MLKEM768 || s.DidResume {
			t.Errorf("%v, resumed %v", s.CurveID, s.DidResume)
		}
	}
	for i := range seen {
		for k := range i {
			if *seen[i].Get() == *seen[k].Get() {
				t.Errorf("keys %d and %d are the same: of two directions, or of two exchanges", i, k)
			}
		}
	}
	if sprint(seen[0]) == sprint(*seen[0].Get()) {
		t.Error("a key prints")
	}
}

// TestWhoIsNotKnown: neither end talks to anybody but the node that it knows.
func TestWhoIsNotKnown(t *testing.T) {
	for name, change := range map[string]func(*pair){
		"another server": func(p *pair) { p.client = p.a.Client(identity(t, 3).Pin()) },
		"another client": func(p *pair) { p.client = identity(t, 3).Client(p.b.Pin()) },
		"no certificate": func(p *pair) { p.client.Certificates = nil },
		"TLS 1.2": func(p *pair) {
			p.client = p.client.Clone()
			p.client.MinVersion, p.client.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		},
		"no post-quantum keys": func(p *pair) { p.client.CurvePreferences = []tls.CurveID{tls.X25519} },
		"another protocol":     func(p *pair) { p.client.NextProtos = []string{"h2"} },
	} {
		p := newPair(t, change)
		if p.shook[0] == nil && p.shook[1] == nil {
			t.Errorf("%s: both ends take the connection", name)
		}
	}
	p := newPair(t, func(p *pair) { p.client.NextProtos = nil })
	if _, err := Initiate(p.conn[0], p.a, Offer{Epoch: 1}, &states{}); fault.From(err).Code != fault.CodeRequest {
		t.Errorf("without a protocol: %v", err)
	}
	p = newPair(t, func(p *pair) {
		p.a, p.client, p.serverKnow = p.b, p.b.Client(p.b.Pin()), func(Pin) bool { return true }
	})
	if _, err := Initiate(p.conn[0], p.b, Offer{Epoch: 1}, &states{}); fault.From(err).Code != fault.CodeSelf {
		t.Errorf("to itself: %v", err)
	}
}

// TestWhatTheOtherEndMaySay: an end that says something else, or ends, leaves an error and no waiting.
func TestWhatTheOtherEndMaySay(t *testing.T) {
	say := func(m ...message) func(*tls.Conn) {
		return func(c *tls.Conn) {
			for i, x := range m {
				if i > 0 || x.kind == answer && x.epoch > 1 { // it answers
					var b [messageBytes]byte
					if _, err := c.Read(b[:]); err != nil {
						return
					}
				}
				if _, err := c.Write(x.bytes()); err != nil {
					return
				}
			}
			c.NetConn().Close()
		}
	}
	for name, c := range map[string]struct {
		initiates bool // the end that is tested
		fail      string
		other     func(*tls.Conn)
	}{
		"the answer is of another epoch": {true, "", say(message{answer, 8, 0x2002, 5})},
		"the answer has our SPI":         {true, "", say(message{answer, 7, 0x1001, 5})},
		"the answer has a reserved SPI":  {true, "", say(message{answer, 7, 0xff, 5})},
		"no answer":                      {true, "", say()},
		"no SPI":                         {true, "spi", say()},
		"the kernel refuses to receive":  {true, "receives", say()},
		"the kernel refuses to send":     {true, "sends", say(message{answer, 7, 0x2002, 5})},
		"an answer in place of an offer": {false, "", say(message{kind: answer, epoch: 1, spi: 0x3003})},
		"the offer has our SPI":          {false, "", say(message{offer, 1, 0x1001, 5})},
		"the offer has a reserved SPI":   {false, "", say(message{offer, 1, 0, 5})},
		"the offer is not wanted":        {false, "offered", say(message{offerRaw, 1, 0x3003, 5})},
		"no end":                         {false, "", say(message{offer, 1, 0x3003, 5})},
		"the end is of another epoch":    {false, "", say(message{offer, 1, 0x3003, 5}, message{done, 2, 0x1001, 5})},
		"the end is of another SPI":      {false, "", say(message{offer, 1, 0x3003, 5}, message{done, 1, 0x3003, 5})},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, nil)
			var log journal
			s := &states{spi: 0x1001, log: &log, keys: map[uint32]Key{}, fail: c.fail}
			p.both(t, func(i int) error {
				if tested := i == 0; tested != c.initiates {
					c.other(p.conn[i])
					return nil
				}
				defer p.conn[i].NetConn().Close()
				var err error
				if c.initiates {
					_, err = Initiate(p.conn[i], p.a, Offer{Epoch: 7}, s)
				} else {
					_, err = Respond(p.conn[i], p.b, 8, s)
				}
				if err == nil {
					t.Error("it is taken")
				}
				return nil
			})
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message{offer, 1, 0x1001, 5}.bytes())
	f.Add(message{kind: 9}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != messageBytes {
			return
		}
		for _, want := range []kind{offer, answer, done} {
			if m, err := parse([messageBytes]byte(b), want); err == nil && string(m.bytes()) != string(b) {
				t.Fatalf("%x is read as %+v", b, m)
			}
		}
	})
}

func sprint(v any) string { return fmt.Sprint(v) }
