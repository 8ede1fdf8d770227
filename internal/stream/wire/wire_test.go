// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

func frame(t testing.TB, m proto.Message) []byte {
	t.Helper()
	out, err := wire.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFramesFollowEachOther(t *testing.T) {
	sent := []*pb.Control{
		{Frame: &pb.Control_Ping{Ping: &pb.Ping{Number: 1}}},
		{},
		{Frame: &pb.Control_Hello{Hello: &pb.Hello{VersionMin: 1, VersionMax: 1, Ranges: []string{"10.0.0.0/8:443"}}}},
	}
	var buf bytes.Buffer
	for _, m := range sent {
		if err := wire.Write(&buf, m); err != nil {
			t.Fatal(err)
		}
	}
	r := iotest.OneByteReader(&buf)
	for i, want := range sent {
		var got pb.Control
		if err := wire.Read(r, limit.ControlFrame, &got); err != nil || !proto.Equal(&got, want) {
			t.Errorf("frame %d: %v, %v", i, &got, err)
		}
	}
	if err := wire.Read(r, limit.ControlFrame, &pb.Control{}); err != io.EOF {
		t.Errorf("at the end: %v, want a plain EOF", err)
	}
}

func TestAFrameLeavesInOneWrite(t *testing.T) {
	var w counter
	if err := wire.Write(&w, &pb.Hello{Software: "x"}); err != nil || w != 1 {
		t.Errorf("%d writes, %v; want one", w, err)
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c++; return len(p), nil }

func TestAppendKeepsWhatIsThereAndRefusesWhatIsNoText(t *testing.T) {
	out, err := wire.Append([]byte("before"), &pb.Ping{Number: 7})
	if err != nil || !bytes.Equal(out, append([]byte("before"), frame(t, &pb.Ping{Number: 7})...)) {
		t.Errorf("%x, %v", out, err)
	}
	if _, err := wire.Append(nil, &pb.Hello{Software: "\xff"}); !fault.Has(err, fault.CodeInternal) {
		t.Errorf("text that is no UTF-8: %v", err)
	}
}

func TestAnEndWithinAFrameIsTold(t *testing.T) {
	whole := frame(t, wire.Dial{Network: "tcp", Address: "a:1", Timeout: time.Second}.Message())
	for n := range whole {
		var m pb.DialRequest
		err := wire.Read(bytes.NewReader(whole[:n]), limit.DialFrame, &m)
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if !errors.Is(err, want) || n > 0 && errors.Is(err, io.EOF) {
			t.Errorf("cut to %d of %d bytes: %v, want %v", n, len(whole), err, want)
		}
	}
}

func TestBadFramesAreRefused(t *testing.T) {
	exact := make([]byte, 100)
	filled := frame(t, &pb.Drain{Reason: string(bytes.Repeat([]byte("a"), 98))})
	for name, c := range map[string]struct {
		data []byte
		most int
		want fault.Code // empty: accepted
	}{
		"one byte more than allowed, announced only": {[]byte{0, 0, 0, 101}, 100, fault.CodeFrameTooLarge},
		"the largest length there is":                {[]byte{255, 255, 255, 255}, limit.ControlFrame, fault.CodeFrameTooLarge},
		"exactly as large as allowed":                {filled, len(filled) - 4, ""},
		"one byte larger than allowed":               {filled, len(filled) - 5, fault.CodeFrameTooLarge},
		"zeros":                                      {append([]byte{0, 0, 0, 100}, exact...), 100, fault.CodeFrameInvalid},
		"an HTTP request":                            {[]byte("GET / HTTP/1.1\r\n\r\n"), limit.ControlFrame, fault.CodeFrameTooLarge},
		"a text that is no UTF-8":                    {[]byte{0, 0, 0, 3, 0x0a, 1, 0xff}, 100, fault.CodeFrameInvalid},
		"a field that ends after the frame":          {[]byte{0, 0, 0, 2, 0x0a, 9}, 100, fault.CodeFrameInvalid},
		"an empty frame":                             {[]byte{0, 0, 0, 0}, 100, ""},
		"nothing allowed, nothing sent":              {[]byte{0, 0, 0, 0}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := wire.Read(bytes.NewReader(c.data), c.most, &pb.Drain{})
			if c.want == "" && err != nil || c.want != "" && !fault.Has(err, c.want) {
				t.Errorf("%v, want code %q", err, c.want)
			}
		})
	}
}

func TestUnknownFieldsAndFramesAreIgnored(t *testing.T) {
	raw, err := proto.Marshal(&pb.Control{Frame: &pb.Control_Ping{Ping: &pb.Ping{Number: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	raw = protowire.AppendTag(raw, 999, protowire.BytesType)
	raw = protowire.AppendBytes(raw, []byte("of a later version"))
	var m pb.Control
	if err := wire.Read(bytes.NewReader(append([]byte{0, 0, 0, byte(len(raw))}, raw...)), limit.ControlFrame, &m); err != nil || m.GetPing().GetNumber() != 3 {
		t.Errorf("%v, %v", &m, err)
	}
	later := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), nil)
	var unknown pb.Control
	if err := wire.Read(bytes.NewReader(append([]byte{0, 0, 0, byte(len(later))}, later...)), limit.ControlFrame, &unknown); err != nil || unknown.GetFrame() != nil {
		t.Errorf("a frame of a later version: %v, %v", &unknown, err)
	}
}

func TestTheDeadlineOfADialIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		millis int64
		want   time.Duration
	}{
		"none":                             {0, limit.Dial},
		"a millisecond":                    {1, time.Millisecond},
		"thirty seconds":                   {30_000, 30 * time.Second},
		"two minutes":                      {120_000, 2 * time.Minute},
		"more than two minutes":            {120_001, 2 * time.Minute},
		"the most that there is":           {math.MaxInt64, 2 * time.Minute},
		"what overflows to a second":       {math.MaxInt64/1_000_000*2 + 1000, 2 * time.Minute},
		"less than nothing":                {-1, limit.Dial},
		"the least that there is":          {math.MinInt64, limit.Dial},
		"a negative that would wrap round": {math.MinInt64/1_000_000*2 + 5, limit.Dial},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := wire.ReadDial(bytes.NewReader(frame(t, &pb.DialRequest{TimeoutMillis: c.millis})))
			if err != nil || d.Timeout != c.want {
				t.Errorf("%v, %v; want %v", d.Timeout, err, c.want)
			}
		})
	}
	t.Run("a deadline within a millisecond stays one", func(t *testing.T) {
		d, err := wire.ReadDial(bytes.NewReader(frame(t, wire.Dial{Timeout: 10 * time.Microsecond}.Message())))
		if err != nil || d.Timeout != time.Millisecond {
			t.Errorf("%v, %v", d.Timeout, err)
		}
	})
}

func TestADialSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(-1, 100, 300)
		want := wire.Dial{
			Network: text.Draw(t, "network"), Address: text.Draw(t, "address"),
			Timeout: time.Duration(rapid.Int64Range(1, 120_000).Draw(t, "timeout")) * time.Millisecond,
			Caller:  text.Draw(t, "caller"), EgressType: text.Draw(t, "egress type"), Ask: rapid.Bool().Draw(t, "ask"),
		}
		if rapid.Bool().Draw(t, "with metadata") {
			want.Trace, want.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1,b=2"
			want.Metadata = []reqmeta.Pair{{Key: "ticket", Value: "OPS-1"}, {Key: "who", Value: "Jörg"}}
		}
		data, err := wire.Append(nil, want.Message())
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.ReadDial(bytes.NewReader(data))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
	})
}

// TestMetadataFromAHubThatChecksNothing reads a request as no honest hub sends it.
func TestMetadataFromAHubThatChecksNothing(t *testing.T) {
	m := wire.Dial{Network: "tcp", Address: "a:1", Trace: "x\ny", TraceState: "a=1"}.Message()
	for i := range 100 {
		m.Metadata = append(m.Metadata, &pb.Pair{Key: fmt.Sprint("k", i), Value: strings.Repeat("v", 40)})
	}
	d, err := wire.ReadDial(bytes.NewReader(frame(t, m)))
	if err != nil || d.Trace != "" || d.TraceState != "" || len(d.Metadata) != limit.AuditPairs {
		t.Errorf("%+v, %v", d, err)
	}
	m.Metadata = []*pb.Pair{{Key: "good", Value: "v"}, {Key: "bad", Value: "\x1b[31m"}, {Key: "never", Value: "v"}}
	if d, err := wire.ReadDial(bytes.NewReader(frame(t, m))); err != nil || len(d.Metadata) != 1 || d.Metadata[0].Key != "good" {
		t.Errorf("%+v, %v", d.Metadata, err)
	}
}

func TestReplies(t *testing.T) {
	read := func(m proto.Message) (string, error) {
		at, _, err := wire.ReadReply(bytes.NewReader(frame(t, m)), false)
		return at, err
	}
	if at, err := read(wire.Reply("10.0.0.1:443", nil)); err != nil || at != "10.0.0.1:443" {
		t.Errorf("success: %q, %v", at, err)
	}
	sent := fault.New(fault.CodeDialRefused, "a:1 refused").Whyf("nothing listens").Hint("start it")
	_, err := read(wire.Reply("", sent))
	if got := fault.From(err); got.Code != sent.Code || got.Explain() != sent.Explain() {
		t.Errorf("refusal: %v", err)
	}
	if at, err := read(&pb.DialReply{Fault: &pb.Fault{What: "a fault without a code is none"}, Resolved: "1.2.3.4:5\r\n"}); err != nil || at != "1.2.3.4:5  " {
		t.Errorf("%q, %v", at, err)
	}
	if _, _, err := wire.ReadReply(strings.NewReader("\x00\x00\xff\xff"), false); !fault.Has(err, fault.CodeFrameTooLarge) {
		t.Errorf("oversized: %v", err)
	}
	if _, err := wire.ReadDial(strings.NewReader("\x00\x00\xff\xff")); !fault.Has(err, fault.CodeFrameTooLarge) {
		t.Errorf("oversized: %v", err)
	}
	if wire.ToFault(nil) != nil || wire.FromFault(nil) != nil {
		t.Error("no fault became one")
	}
}

// clean says whether a text of a peer may be printed, logged and sent as a header.
func clean(s string) bool {
	return len(s) <= limit.FaultText && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func TestHostileTextsAreMadeHarmless(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"plain text stays":                       {"no route to 10.0.0.1: ask Müller", "no route to 10.0.0.1: ask Müller"},
		"line ends cannot forge a log line":      {"a\r\nlevel=ERROR", "a  level=ERROR"},
		"escape sequences do not reach a screen": {"\x1b[2J", "?[2J"},
		"nor do those of the second set":         {"\u009b2J", "?2J"},
		"NUL and delete go":                      {"a\x00b\x7f", "a?b?"},
		"separators of Unicode go":               {"a\u0085b\u2028c\u2029", "a b c "},
		"the direction of writing stays":         {"a\u202eb\u2066c", "a?b?c"},
		"invisible characters go":                {"a\u200bb\ufeff", "a?b?"},
		"bytes that are no UTF-8 go":             {"a\xff\xfeb", "a??b"},
		"what is too long is cut":                {strings.Repeat("x", 5000), strings.Repeat("x", limit.FaultText)},
		"a cut within a character leaves none":   {strings.Repeat("x", limit.FaultText-1) + "ü", strings.Repeat("x", limit.FaultText-1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wire.Clean(c.text); got != c.want || !clean(got) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestFaultsOfAPeerAreMadeHarmless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 2000), func(b []byte) string { return string(b) }))
		in := &pb.Fault{Code: text.Draw(t, "code"), What: text.Draw(t, "what"), Why: text.Draw(t, "why"), Next: text.Draw(t, "next")}
		f := wire.FromFault(in)
		if f == nil {
			if in.Code != "" {
				t.Fatal("a fault was lost")
			}
			return
		}
		if !clean(f.What) || !clean(f.Why) || !clean(f.Next) {
			t.Fatalf("%q", f)
		}
		if len(f.Code) > 64 || strings.Trim(string(f.Code), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Fatalf("code %q", f.Code)
		}
		// What we send of it again is a frame that every reader takes.
		data, err := wire.Append(nil, wire.Reply("10.0.0.1:443", f))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := wire.ReadReply(bytes.NewReader(data), false); !fault.Has(err, f.Code) {
			t.Fatalf("%v", err)
		}
	})
}

func TestNegotiate(t *testing.T) {
	for name, c := range map[string]struct {
		low, high uint32
		ok        bool
	}{
		"the same version":                 {1, 1, true},
		"an agent that knows newer ones":   {1, 9, true},
		"an agent that knows older ones":   {0, 1, true},
		"an agent that is too new":         {2, 3, false},
		"an agent that is too old":         {0, 0, false},
		"an agent whose range is reversed": {2, 1, false},
		"the largest numbers":              {math.MaxUint32, math.MaxUint32, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, f := wire.Negotiate(c.low, c.high)
			if c.ok && (f != nil || v != wire.Version) {
				t.Errorf("%d, %v", v, f)
			}
			if !c.ok && (f == nil || f.Code != fault.CodeVersion || f.Next == "" || v != 0) {
				t.Errorf("%d, %v", v, f)
			}
		})
	}
}
