// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/tombolo-io/tombolo/internal/stream/packet"
)

// sent reads all that a sender has to send.
func sent(t *testing.T, s *sender) (out []packet.Packet) {
	t.Helper()
	text, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	to := &tunnel{}
	for from := bytes.NewReader(text); from.Len() > 0; {
		p, err := to.next(from)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// TestAnAnswerThatCrossesTheEndOfItsDial leaves no connection open: it is closed by its id.
func TestAnAnswerThatCrossesTheEndOfItsDial(t *testing.T) {
	for name, c := range map[string]struct {
		answered bool
		want     packet.Packet
	}{
		"answered": {true, packet.Packet{Type: packet.CloseRequest, ConnectID: 5}},
		"not":      {false, packet.Packet{Type: packet.CloseDial, Random: 99}},
	} {
		for range 20 { // select chooses at random
			from, write := net.Pipe()
			s := newSender(from, "a:1", 99)
			if c.answered {
				s.opened <- 5
			}
			close(s.abandoned)
			write.Close()
			got := sent(t, s)
			if len(got) != 2 || got[0].Type != packet.DialRequest || got[0].Address != "a:1" || got[0].Random != 99 ||
				got[1].Type != c.want.Type || got[1].ConnectID != c.want.ConnectID || got[1].Random != c.want.Random {
				t.Fatalf("%s: %+v", name, got)
			}
			s.stop()
		}
	}
}

// FuzzPackets has a proxy say anything; what it says ends the dial or the connection, and the caller learns so.
func FuzzPackets(f *testing.F) {
	frame := func(all ...packet.Packet) (out []byte) {
		for _, p := range all {
			s := sender{}
			s.add(p)
			out = append(out, s.frame...)
		}
		return out
	}
	answer := packet.Packet{Type: packet.DialResponse, Random: 1, ConnectID: 2}
	f.Add([]byte{})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff})
	f.Add(frame(packet.Packet{Type: packet.DialResponse, Random: 1, Error: "no"}))
	f.Add(frame(answer, packet.Packet{Type: packet.Data, ConnectID: 2, Payload: []byte("x")}, packet.Packet{Type: packet.CloseResponse, ConnectID: 2}))
	f.Add(frame(answer, answer, packet.Packet{Type: packet.CloseDial, Random: 1}))
	f.Fuzz(func(t *testing.T, body []byte) {
		tn := newTunnel("a:1", func() {})
		tn.random = 1
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/grpc"}},
			Body: io.NopCloser(bytes.NewReader(body))}
		read := make(chan error, 1)
		go func() { _, err := io.Copy(io.Discard, tn.out); read <- err }()
		tn.receive(res, nil)
		if err := <-read; err != nil {
			t.Fatalf("the caller's pipe: %v", err)
		}
		if err := <-tn.answer; (err == nil) != (tn.id != 0) {
			t.Fatalf("connection %d, and the dial says %v", tn.id, err)
		}
		if tn.id != 0 && tn.end == nil {
			t.Fatal("the end of the connection is not known")
		}
	})
}
