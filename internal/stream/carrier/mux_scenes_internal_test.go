// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// lossSection begins the vectors that take two ends and two connections.
const lossSection = "\n### Loss of a connection\n"

// sceneStep is one step of a line of that table.
type sceneStep struct {
	who    byte // 'c' or 's' sends, at 'x' a connection is lost
	on     byte // 'A' or 'B'
	frames []string
}

// sceneRows gives the lines of the page's table: a name and steps.
func sceneRows(t testing.TB) (names []string, rows map[string][]sceneStep) {
	t.Helper()
	page := must[[]byte](t)(os.ReadFile(specification))
	_, table, found := bytes.Cut(page, []byte(lossSection))
	if !found {
		t.Fatalf("%s has no section about the loss of a connection", specification)
	}
	rows = map[string][]sceneStep{}
	for _, m := range regexp.MustCompile("(?m)^\\| (.+?) \\| (`.+`) \\|$").FindAllSubmatch(table, -1) {
		name := string(m[1])
		names = append(names, name)
		for _, s := range regexp.MustCompile("`(?:([cs]) ([AB]) ([0-9a-f ]+)|(x) ([AB]))`").FindAllStringSubmatch(string(m[2]), -1) {
			if s[4] != "" {
				rows[name] = append(rows[name], sceneStep{who: 'x', on: s[5][0]})
				continue
			}
			rows[name] = append(rows[name], sceneStep{s[1][0], s[2][0], framesOf(t, s[3])})
		}
		if steps := bytes.Count(m[2], []byte("`")) / 2; steps != len(rows[name]) {
			t.Errorf("%d of %d steps of %q can be read", len(rows[name]), steps, name)
		}
	}
	if lines := bytes.Count(table, []byte("\n| ")) - 2; lines != len(rows) {
		t.Fatalf("%d of %d rows of the table can be read", len(rows), lines)
	}
	return names, rows
}

// framesOf splits digits into the frames that they are.
func framesOf(t testing.TB, digits string) (frames []string) {
	t.Helper()
	for _, f := range parsed(t, unhex(t, digits)) {
		frames = append(frames, fmt.Sprintf("%02x%06x%08x%x", f.kind, len(f.payload), f.id, f.payload))
	}
	return frames
}

// stage is a session that plays one end of a scene against frames written by hand.
type stage struct {
	t       *testing.T
	s       *muxSession
	peers   map[byte]*peer
	b       *lane
	streams []*muxStream // the newest last
}

func (x *stage) newest() *muxStream { return x.streams[len(x.streams)-1] }

// doing is what the application does so that its end sends a step; nil: the end
// sends it by itself.
type doing func(x *stage)

func opening(first string) doing {
	return func(x *stage) { x.streams = append(x.streams, open(x.t, x.s, first)) }
}

func writes(text string) doing {
	return func(x *stage) {
		if n, err := io.WriteString(x.newest(), text); n != len(text) || err != nil {
			x.t.Errorf("wrote %d bytes, %v", n, err)
		}
	}
}

func reading(text string) doing {
	return func(x *stage) {
		got := make([]byte, len(text))
		if _, err := io.ReadFull(x.newest(), got); err != nil || string(got) != text {
			x.t.Errorf("read %q, %v, want %q", got, err, text)
		}
	}
}

func accepts(x *stage)  { x.streams = append(x.streams, accept(x.t, x.s)) }
func wants(x *stage)    { travel(x.newest(), x.b) } // and moves with what comes next
func goesAway(x *stage) { x.s.GoAway() }

// finishes with a last word in the same write.
func finishes(text string) doing {
	return func(x *stage) {
		release := halt(x.b)
		writes(text)(x)
		x.newest().CloseWrite()
		release()
	}
}

func all(do ...doing) doing {
	return func(x *stage) {
		for _, d := range do {
			d(x)
		}
	}
}

// ended wants a stream to have given what came, and then to be lost both ways.
func (x *stage) ended(st *muxStream, text string) {
	x.t.Helper()
	gone := fault.New(fault.CodeSessionLost, "")
	reads(x.t, st, text, gone)
	_, err := st.Write([]byte("a"))
	isError(x.t, err, gone)
}

// scene is a line of the page as the ends play it: what the application does for
// each step of its end, in order, and what it sees afterwards. An end that is nil
// is not played.
type scene struct {
	client, server []doing
	after          func(x *stage)
}

func scenes() map[string]scene {
	// Each end has got something else of the stream that is lost.
	lost := func(client, server string) func(x *stage) {
		return func(x *stage) {
			if x.s.client {
				x.ended(x.streams[0], client)
			} else {
				x.ended(x.streams[0], server)
			}
		}
	}
	return map[string]scene{
		"a stream wholly on A": {
			[]doing{opening("hi"), nil}, []doing{nil},
			func(x *stage) {
				if !x.s.client {
					accepts(x)
				}
				lost("", "hi")(x)
			},
		},
		"a stream with only the server's direction on A": {
			[]doing{opening(""), all(wants, writes("hi")), nil},
			[]doing{all(accepts, writes("ok")), nil, nil},
			lost("ok", "hi"),
		},
		"a stream with only the client's direction on A": {
			[]doing{opening("hi"), nil, nil},
			[]doing{all(accepts, wants, writes("ok")), nil},
			lost("ok", "hi"),
		},
		"a stream that has moved to B continues, MOVED is repeated": {
			[]doing{opening("hi"), nil, all(wants, writes("!")), nil, finishes("?")},
			[]doing{all(accepts, wants, writes("ok")), nil, nil, finishes(".")},
			func(x *stage) {
				text := "hi!?"
				if x.s.client {
					text = "ok."
				}
				reads(x.t, x.newest(), text, io.EOF)
				if n := x.s.Info().Streams; n != 0 {
					x.t.Errorf("%d streams are left", n)
				}
			},
		},
		"the same, WINDOW is repeated too": {
			[]doing{all(accepts, wants, writes("hi")), nil, reading("ok"), nil}, nil,
			func(x *stage) {
				x.peers['B'].send("01 000001 00000002 21")
				reading("!")(x)
				writes("?")(x)
				x.peers['B'].want(numbered(3, 2, 11), "01 000001 00000002 3f")
			},
		},
		"GOAWAY 0 is repeated": {
			[]doing{}, []doing{goesAway, nil},
			func(x *stage) {
				if _, err := x.s.OpenStream(x.t.Context(), nil); fault.Has(err, fault.CodeDraining) != x.s.client {
					x.t.Errorf("open: %v", err)
				}
			},
		},
		"another stream in place of one that was lost, such as a control stream, begins on the remaining connection": {
			[]doing{opening("hi"), nil, opening("hi")}, []doing{nil, all(accepts, accepts, writes("ok"))},
			func(x *stage) {
				lost("", "hi")(x)
				if x.s.client {
					reading("ok")(x)
				} else {
					reading("hi")(x)
				}
			},
		},
	}
}

// TestLossVectors plays each line of the page at either end, against its other end
// by hand: a session sends what the line says, and nothing else.
func TestLossVectors(t *testing.T) {
	names, rows := sceneRows(t)
	known := scenes()
	for name := range known {
		if !slices.Contains(names, name) {
			t.Errorf("the page has no row %q", name)
		}
	}
	for _, name := range names {
		sc, ok := known[name]
		if !ok {
			t.Errorf("nothing tests the row %q of the page", name)
			continue
		}
		for role, do := range map[byte][]doing{'c': sc.client, 's': sc.server} {
			if do != nil {
				t.Run(fmt.Sprintf("%s, played by %c", name, role), func(t *testing.T) {
					x := play(t, role, rows[name], do)
					sc.after(x)
				})
			}
		}
	}
}

// play goes through the steps, those of its own end and those of the other.
func play(t *testing.T, role byte, steps []sceneStep, do []doing) *stage {
	t.Helper()
	s, peers := connected(t, role == 'c', "AB")
	x := &stage{t: t, s: s, peers: peers}
	for _, p := range x.peers {
		p.settle()
	}
	s.growth.Store(mostGrowth) // windows stay as they are
	x.b = s.lanes[1]
	for i, step := range steps {
		p := x.peers[step.on]
		switch step.who {
		case role:
			if len(do) == 0 {
				t.Fatalf("step %d: nothing tells what the session does", i)
			}
			if do[0] != nil {
				do[0](x)
			}
			do = do[1:]
			for _, want := range step.frames {
				if got := x.heard(p); got != want {
					t.Fatalf("step %d: the session sends\n%s, the page says\n%s", i, got, want)
				}
			}
		case 'x':
			p.conn.Close()
			delete(x.peers, step.on)
			runtest.Eventually(t, "the loss is known", func() bool { return s.Info().Connections == len(x.peers) })
		default:
			p.send(strings.Join(step.frames, ""))
			p.settleAll(x.peers)
		}
	}
	for _, p := range x.peers {
		p.settleAll(x.peers)
	}
	if said := drained(x.peers); len(said) != 0 || len(do) != 0 {
		t.Fatalf("the session also says %q; %d steps are left", said, len(do))
	}
	return x
}

// heard is the next frame that the session has sent there.
func (x *stage) heard(p *peer) string {
	x.t.Helper()
	if len(p.heard) > 0 {
		f := p.heard[0]
		p.heard = p.heard[1:]
		return digits(f)
	}
	return digits(p.next())
}
