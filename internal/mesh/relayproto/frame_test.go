// SPDX-License-Identifier: Apache-2.0

package relayproto

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

type vectors struct {
	Welcome []struct {
		Observed string
		Port     uint16
		Largest  int
		Rate     uint64
		Frame    string
	}
	Packet []struct{ Name, Datagram, Frame string }
	Absent []struct{ Name, Frame string }
	Ping   []struct{ ID, Ping, Pong string }
	Drain  string
	End    []struct{ Code, What, Why, Next, Frame string }
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// one reads a text of the vectors, which holds exactly one frame.
func one(t *testing.T, text string, want Type) []byte {
	t.Helper()
	kind, body, rest, need, err := Next(unhex(t, text))
	if kind != want || len(rest) != 0 || need != 0 || err != nil {
		t.Fatalf("type %d with %d more bytes, need %d, %v", kind, len(rest), need, err)
	}
	return body
}

// TestVectors holds both directions against bytes that an independent program made
// of the specification.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	same := func(what string, got []byte, want string) {
		t.Helper()
		if hex.EncodeToString(got) != want {
			t.Errorf("%s: wrote %x, want %s", what, got, want)
		}
	}
	if len(v.Welcome) < 2 || len(v.Packet) < 3 || len(v.Absent) < 1 || len(v.Ping) < 1 || len(v.End) < 1 {
		t.Fatalf("vectors are missing: %+v", v)
	}
	for _, c := range v.Welcome {
		g := Greeting{netip.AddrPortFrom(netip.MustParseAddr(c.Observed), c.Port), c.Largest, c.Rate}
		same("welcome", AppendWelcome(nil, g), c.Frame)
		if got, err := ParseWelcome(one(t, c.Frame, Welcome)); err != nil || got != g {
			t.Errorf("read %+v, %v", got, err)
		}
	}
	for _, c := range v.Packet {
		d := unhex(t, c.Datagram)
		got := AppendPacket(nil, c.Name, d)
		same("packet", got, c.Frame)
		if len(got) != PacketSize(c.Name, d) {
			t.Errorf("size %d of %d", PacketSize(c.Name, d), len(got))
		}
		if name, rest, err := ParseNamed(one(t, c.Frame, Packet)); err != nil || string(name) != c.Name || !bytes.Equal(rest, d) {
			t.Errorf("read %q, %x, %v", name, rest, err)
		}
	}
	for _, c := range v.Absent {
		same("absent", AppendAbsent(nil, c.Name), c.Frame)
		if name, rest, err := ParseNamed(one(t, c.Frame, Absent)); err != nil || string(name) != c.Name || len(rest) != 0 {
			t.Errorf("read %q, %v", name, err)
		}
	}
	for _, c := range v.Ping {
		id, err := strconv.ParseUint(c.ID, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		same("ping", AppendPing(nil, Ping, id), c.Ping)
		same("pong", AppendPing(nil, Pong, id), c.Pong)
		if got, err := ParsePing(one(t, c.Pong, Pong)); err != nil || got != id {
			t.Errorf("read %x, %v", got, err)
		}
	}
	same("drain", AppendDrain(nil), v.Drain)
	for _, c := range v.End {
		r := Reason{c.Code, c.What, c.Why, c.Next}
		same("end", AppendEnd(nil, r), c.Frame)
		if got, err := ParseEnd(one(t, c.Frame, End)); err != nil || got != r {
			t.Errorf("read %+v, %v", got, err)
		}
	}
}

func TestWhatIsCutShortOrTooLong(t *testing.T) {
	whole := AppendPacket(nil, "n1", []byte("datagram"))
	for n := range whole {
		kind, body, rest, need, err := Next(whole[:n])
		if kind != 0 || body != nil || len(rest) != n || need <= n || need > len(whole) || err != nil {
			t.Errorf("%d bytes: type %d, need %d, %v", n, kind, need, err)
		}
	}
	if _, _, _, _, err := Next([]byte{2, 0xff, 0xff, 0xff}); err == nil {
		t.Error("16 MiB were taken")
	}
	if _, _, _, need, err := Next(head(nil, 99, limit.RelayFrame)); err != nil || need != Head+limit.RelayFrame {
		t.Errorf("the longest frame: %d, %v", need, err)
	}
	for name, err := range map[string]error{
		"no name":         second(ParseNamed(nil)),
		"an empty name":   second(ParseNamed([]byte{0, 1})),
		"half a name":     second(ParseNamed([]byte{3, 'a', 'b'})),
		"half a ping":     first(ParsePing(make([]byte, 7))),
		"half a welcome":  first(ParseWelcome(make([]byte, greetingLength-1))),
		"takes no packet": first(ParseWelcome(make([]byte, greetingLength))),
		"half an end":     first(ParseEnd([]byte{0, 1, 'a', 0, 0, 0, 0, 0})),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	long := strings.Repeat("x", 2*limit.FaultText)
	_, body, _, need, err := Next(AppendEnd(nil, Reason{long, long, long, long}))
	if r, perr := ParseEnd(body); err != nil || perr != nil || need != 0 || len(r.Next) != limit.FaultText {
		t.Errorf("long texts: %v, %v", err, perr)
	}
}

func first[T any](_ T, err error) error          { return err }
func second[T, U any](_ T, _ U, err error) error { return err }

// FuzzFrames: nothing of any length panics; frames are taken in turn and to the last
// byte; what is read is written alike.
func FuzzFrames(f *testing.F) {
	f.Add(AppendWelcome(nil, Greeting{netip.MustParseAddrPort("192.0.2.1:9"), 9000, 1}))
	f.Add(AppendPing(AppendPacket(AppendAbsent(nil, "n"), "m", []byte{1, 0, 0, 0}), Pong, 7))
	f.Add(AppendEnd(AppendDrain(nil), Reason{"a", "b", "c", "d"}))
	f.Add([]byte{2, 0, 0, 2, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for taken := 0; ; {
			kind, body, rest, need, err := Next(b)
			if err != nil || need > 0 {
				if need > 0 && need <= len(b) {
					t.Fatalf("%d bytes are needed of %d", need, len(b))
				}
				return
			}
			if taken = len(b) - len(rest); taken != Head+len(body) {
				t.Fatalf("%d bytes for a body of %d", taken, len(body))
			}
			var again []byte
			switch kind {
			case Welcome:
				if g, err := ParseWelcome(body); err == nil {
					if h, err := ParseWelcome(AppendWelcome(nil, g)[Head:]); err != nil || h != g {
						t.Fatalf("%+v became %+v", g, h)
					}
				}
			case Packet:
				if name, d, err := ParseNamed(body); err == nil {
					again = AppendPacket(nil, string(name), d)
				}
			case Ping, Pong:
				if id, err := ParsePing(body); err == nil && len(body) == 8 {
					again = AppendPing(nil, kind, id)
				}
			case End:
				_, _ = ParseEnd(body)
			}
			if again != nil && !bytes.Equal(again, b[:taken]) {
				t.Fatalf("%x became %x", b[:taken], again)
			}
			b = rest
		}
	})
}
