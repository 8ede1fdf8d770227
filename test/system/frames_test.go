// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Frames of docs/reference/mux.md, as a peer writes them that keeps no rule.
const (
	rawData = 1
	rawOpen = 2
	rawFin  = 4
	rawRst  = 5
	rawPing = 6
	rawPong = 7
)

func rawFrame(b []byte, kind byte, id uint32, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(kind)<<24|uint32(len(payload)))
	return append(binary.BigEndian.AppendUint32(b, id), payload...)
}

// opening is the payload of OPEN with windows of 256 KiB.
func opening() []byte { return []byte{0, 4, 0, 0, 0, 4, 0, 0} }

// attacker is an agent of cluster c1 that has greeted and now writes frames.
func (s *siege) attacker(cert certificate) *tls.Conn {
	s.t.Helper()
	conn, w := s.muxWelcome(cert, nil)
	if w.GetRefusal() != nil {
		s.t.Fatalf("refused: %v", w)
	}
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	return conn
}

// cut says whether the hub has ended the connection, which an attack may bring about.
func cut(err error) bool {
	var timeout net.Error
	return err == nil || !errors.As(err, &timeout) || !timeout.Timeout()
}

// Frames without end that are never answered to the end cost no memory: what the
// hub would say to them is bounded.
func TestFloodsOfFrames(t *testing.T) {
	ping, unknown := rawFrame(nil, rawPing, 0, make([]byte, 8)), rawFrame(nil, 99, 7, nil)
	stray := rawFrame(nil, rawData, 999, make([]byte, 100))
	for name, frame := range map[string]func(i int) []byte{
		"pings":                    func(int) []byte { return ping },
		"answers to no ping":       func(int) []byte { return rawFrame(nil, rawPong, 0, make([]byte, 8)) },
		"an unknown type":          func(int) []byte { return unknown },
		"data of no stream":        func(int) []byte { return stray },
		"resets of no stream":      func(i int) []byte { return rawFrame(nil, rawRst, uint32(2*i+1), make([]byte, 4)) },
		"windows of no stream":     func(i int) []byte { return rawFrame(nil, 3, uint32(2*i+1), bytes.Repeat([]byte{0xff}, 8)) },
		"streams that are opened":  func(i int) []byte { return rawFrame(nil, rawOpen, uint32(2*i+1), opening()) },
		"streams opened and reset": func(i int) []byte { return rapid(uint32(2*i + 1)) },
		"streams with a byte in it": func(i int) []byte {
			return rawFrame(rawFrame(nil, rawOpen, uint32(2*i+1), opening()), rawData, uint32(2*i+1), []byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := besieged(t)
			cert := s.enrol(s.token("c1").Join)
			s.begin()
			conn := s.attacker(cert)
			sent, most := 0, times(manyFrames)
			s.during(func() error {
				var batch []byte
				for i := range most {
					if batch = append(batch, frame(i)...); len(batch) > 32<<10 || i == most-1 {
						if _, err := conn.Write(batch); err != nil {
							return nil // the hub has had enough, or reads no more of a peer that reads nothing
						}
						batch, sent = batch[:0], i
					}
				}
				return nil
			})
			s.holds(16 << 20)
			s.costs(max(sent, 1000), 0.5)
			conn.NetConn().Close()
			s.lifted()
		})
	}
}

func rapid(id uint32) []byte {
	return rawFrame(rawFrame(nil, rawOpen, id, opening()), rawRst, id, make([]byte, 4))
}

// Frames of every length: what is known has at least its fields, what is unknown
// is passed over, and nothing is longer than 64 KiB.
func TestFramesOfEveryLength(t *testing.T) {
	s := besieged(t)
	cert := s.enrol(s.token("c1").Join)
	s.begin()
	conn := s.attacker(cert)
	s.during(func() error {
		var all []byte
		for n := 0; n <= 64<<10; n += max(1, n/16) {
			all = rawFrame(all, 200, uint32(n), make([]byte, n))
		}
		all = rawFrame(all, 200, 0, make([]byte, 64<<10))
		all = rawFrame(all, rawPing, 0, []byte("8 bytes!"))
		wrote := make(chan error, 1)
		go func() {
			_, err := conn.Write(all)
			wrote <- err
		}()
		// The answer to the last of them shows that all were passed over.
		if err := answersPing(conn, "8 bytes!"); err != nil {
			return err
		}
		return <-wrote
	})
	conn.NetConn().Close()
	for kind := byte(0); kind < 16; kind++ {
		conn := s.attacker(cert)
		head := binary.BigEndian.AppendUint32(nil, uint32(kind)<<24|(64<<10+1))
		conn.Write(append(binary.BigEndian.AppendUint32(head, 1), make([]byte, 100)...))
		mustClose(t, fmt.Sprintf("type %d with a byte too many", kind), conn)
		conn.NetConn().Close()
	}
	s.lifted()
}

// answersPing reads frames until the hub has answered the ping.
func answersPing(conn net.Conn, text string) error {
	var head [8]byte
	for {
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return fmt.Errorf("no answer to the ping: %w", err)
		}
		first := binary.BigEndian.Uint32(head[:])
		payload := make([]byte, first&0xffffff)
		if _, err := io.ReadFull(conn, payload); err != nil {
			return err
		}
		if first>>24 == rawPong && string(payload) == text {
			return nil
		}
	}
}

// What breaks the rules of the mux ends that session at once, and says so in the
// metrics; the same agent may come back.
func TestBrokenRulesEndTheSessionOnly(t *testing.T) {
	s := besieged(t)
	cert := s.enrol(s.token("c1").Join)
	open1 := rawFrame(nil, rawOpen, 1, opening())
	beyond := rawFrame(nil, rawOpen, 1, []byte{0, 4, 0, 0, 0, 0, 0, 0}) // it says itself that it has no credit
	beyond = rawFrame(beyond, rawData, 1, []byte("x"))
	s.begin()
	for name, frames := range map[string][]byte{
		"more data than credit":     beyond,
		"an id that is in use":      append(bytes.Clone(open1), open1...),
		"an id of the other side":   rawFrame(nil, rawOpen, 2, opening()),
		"an OPEN without a stream":  rawFrame(nil, rawOpen, 0, opening()),
		"data behind its end":       rawFrame(rawFrame(bytes.Clone(open1), rawFin, 1, nil), rawData, 1, []byte("x")),
		"a window that is too much": rawFrame(nil, rawOpen, 1, bytes.Repeat([]byte{0xff}, 8)),
		"an OPEN that is too short": rawFrame(nil, rawOpen, 1, make([]byte, 7)),
	} {
		conn := s.attacker(cert)
		s.during(func() error {
			conn.Write(frames)
			_, err := io.Copy(io.Discard, conn)
			if !cut(err) {
				return fmt.Errorf("%s: the session goes on", name)
			}
			return nil
		})
		conn.NetConn().Close()
	}
	runtest.Eventually(t, "no session is left", func() bool { return s.connected("c1") == 0 })
	s.lifted()
}

// Open and reset in a loop, with the manners of the mux: each stream costs what
// its frames cost.
func TestRapidResetOfTheHub(t *testing.T) {
	s := besieged(t)
	cert := s.enrol(s.token("c1").Join)
	s.begin()
	link, err := carrier.Client(s.attacker(cert), carrier.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.OpenStream(runtest.Within(t), []byte{}); err != nil { // the control stream
		t.Fatal(err)
	}
	s.during(func() error {
		for range times(manyResets) {
			st, err := link.OpenStream(t.Context(), []byte("x"))
			switch {
			case fault.Has(err, fault.CodeSessionLost):
				return nil // the hub has had enough
			case err != nil:
				return err
			}
			st.Reset(8)
		}
		return nil
	})
	s.holds(16 << 20)
	s.costs(times(manyResets), 2)
	link.Close()
	s.lifted()
}
