// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// teller is a source that says what the test has it say.
type teller struct {
	begun chan struct{}
	say   func([]roster.Said)
	asked atomic.Pointer[func()] // called once, when somebody asks for its status
}

func (s *teller) Run(ctx context.Context, out func([]roster.Said)) error {
	s.say = out
	close(s.begun)
	<-ctx.Done()
	return nil
}

func (s *teller) Status() []discoveryclient.Status {
	if asked := s.asked.Swap(nil); asked != nil {
		(*asked)()
	}
	return []discoveryclient.Status{{Source: "test", Kind: "file", State: discoveryclient.StateAttending, Settled: true}}
}

// members are n of them, each with many ranges, so that a few fill a backlog.
func members(n, turn int) (out []roster.Said) {
	for i := range n {
		f := member.Facts{ID: fmt.Sprintf("n%d", i), Node: fmt.Sprintf("n%d", i)}
		for j := range 1000 {
			f.Ranges = append(f.Ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(turn), byte(j >> 8), byte(j)}), 32))
		}
		out = append(out, roster.Said{Source: roster.Source{Tier: roster.TierStatic, Name: "test"}, Facts: f})
	}
	return out
}

type rig struct {
	*API
	member *discoveryclient.Client
	source *teller
	path   string
	stop   func()
}

// serve runs a member with its admin socket.
func serve(t *testing.T) *rig {
	t.Helper()
	dir := runtest.Dir(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("A", 42)+"E=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {secretFiles: [" + secret + "]}\nnode: {name: a, stateDir: " + dir + "/state}\n"
	cfg, err := discoveryclient.ParseConfig("mesh.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	source := &teller{begun: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	m, err := discoveryclient.New(cfg, discoveryclient.Options{Log: log, Reg: prometheus.NewRegistry(), Version: "1", Sources: []discoveryclient.Source{source}})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{API: New(m, "1"), member: m, source: source, path: AdminSocket(dir)}
	ln, err := listener.ListenUnix("node.runDir", r.path)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background())
	g.Go("member", m.Run)
	r.Serve(g, ln, log)
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			g.Stop()
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(r.stop)
	<-source.begun
	return r
}

func (r *rig) say(said []roster.Said) {
	r.source.say(said)
	r.member.Merged()
}

func TestStatusAndMembers(t *testing.T) {
	r := serve(t)
	r.say(members(2, 1))
	client := admin.OverSocket(r.path)
	var st Status
	if err := client.Call(runtest.Within(t), http.MethodGet, "/v1/status", nil, &st); err != nil {
		t.Fatal(err)
	}
	if st.Kind != KindStatus || st.Node != "a" || st.Members != 2 || !st.Ready || st.Entry == 0 || st.Lease != "30m0s" || len(st.Clusters) != 1 ||
		!strings.HasPrefix(st.Clusters[0], "t1-") || st.ID == "" || len(st.Sources) != 2 || st.Sources[1].Kind != "cache" {
		t.Errorf("%+v", st)
	}
	var list List
	if err := client.Call(runtest.Within(t), http.MethodGet, "/v1/members?wait=1s", nil, &list); err != nil {
		t.Fatal(err)
	}
	want := ListOf(r.member)
	if len(list.Members) != 2 || fmt.Sprint(list.Members) != fmt.Sprint(want.Members) || list.Kind != "DiscoveryMembers" {
		t.Errorf("%+v\nis not\n%+v", list.Members, want.Members)
	}
	for path, code := range map[string]fault.Code{"/v1/members?wait=1h": fault.CodeRequest, "/v1/members?wait=x": fault.CodeRequest, "/v1/nothing": fault.CodeNotFound} {
		if err := client.Call(runtest.Within(t), http.MethodGet, path, nil, &list); !fault.Has(err, code) {
			t.Errorf("%s: %v", path, err)
		}
	}
	info, err := os.Stat(filepath.Dir(r.path))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the socket: %v, %v", info.Mode(), err)
	}
}

// TestAListHasWhatItsSourcesHaveTold: members that come while it is made are in it, if their source is settled in it.
func TestAListHasWhatItsSourcesHaveTold(t *testing.T) {
	r := serve(t)
	tell := func() { r.source.say(members(2, 1)) }
	r.source.asked.Store(&tell)
	if l := ListOf(r.member); len(l.Members) != 2 || !l.Sources[0].Settled {
		t.Errorf("%d members by %+v", len(l.Members), l.Sources)
	}
}

// words are the lines of a watch without their members.
func words(t *testing.T, r *rig, upTo func(Line) bool) (out []string, err error) {
	t.Helper()
	over := errors.New("enough")
	_, err = admin.OverSocket(r.path).Download(runtest.Within(t), "/v1/watch", &Lines{Each: func(l Line) error {
		word := string(l.What)
		if l.Member != nil {
			word += " " + l.Member.Node
		}
		if out = append(out, word); upTo(l) {
			return over
		}
		return nil
	}})
	if errors.Is(err, over) {
		err = nil
	}
	return out, err
}

// TestWatch: what is known, that it is all, what happens, and the end.
func TestWatch(t *testing.T) {
	r := serve(t)
	r.say(members(1, 1))
	out, err := words(t, r, func(l Line) bool {
		switch {
		case l.What == Listed:
			r.say(members(2, 1))
		case l.What == roster.Joined && l.Member.Node == "n1":
			r.say(members(2, 2)[1:])
		case l.What == roster.Left:
			r.stop()
		case l.What == Ended && !fault.Has(l.Fault.Fault(), fault.CodeDraining):
			t.Errorf("it ends with %+v", l.Fault)
		}
		return false
	})
	if got := strings.Join(out, ", "); err != nil || got != "joined n0, listed, joined n1, changed n1, left n0, ended" {
		t.Errorf("%s; %v", got, err)
	}
}

func TestWatchOfNobody(t *testing.T) {
	r := serve(t)
	if out, err := words(t, r, func(l Line) bool { return l.What == Listed }); err != nil || strings.Join(out, "") != "listed" {
		t.Errorf("%v, %v", out, err)
	}
}

// TestASlowReaderLosesItsPlaceInTheStory, is told so, and nothing is kept for it.
func TestASlowReaderLosesItsPlaceInTheStory(t *testing.T) {
	r := serve(t)
	b, gate := newBacklog(), make(chan struct{})
	var got []string
	var told error
	g := run.NewGroup(context.Background())
	g.Do(func(ctx context.Context) {
		told = b.tell(ctx, nil, r.member, func(p []byte, _ bool) error {
			_, err := (&Lines{Each: func(l Line) error { got = append(got, string(l.What)); return nil }}).Write(p)
			<-gate
			return err
		})
	})
	gate <- struct{}{} // listed: nobody
	turn, kept := 0, 0
	runtest.Eventually(t, "the reader has lost something", func() bool {
		turn++
		r.say(members(40, turn)) // 0.8 MB each
		b.mu.Lock()
		defer b.mu.Unlock()
		kept = max(kept, b.lines.Len())
		return b.lost
	})
	if most := 2 * backlogBytes; kept > most || b.lines.Len() != 0 {
		t.Errorf("%d bytes were kept for it, and %d are", kept, b.lines.Len())
	}
	close(gate)
	if err := g.Wait(); err != nil || told != nil || got[0] != "listed" || got[len(got)-1] != "lost" || strings.Count(strings.Join(got, " "), "lost") != 1 {
		t.Errorf("%v, %v: %d lines, the last is %s", err, told, len(got), got[len(got)-1])
	}
}

// TestWatchersAreBounded: the next one is refused, and the others are told on.
func TestWatchersAreBounded(t *testing.T) {
	r := serve(t)
	ctx, cancel := context.WithCancel(runtest.Within(t))
	g := run.NewGroup(ctx)
	var listed sync.WaitGroup
	listed.Add(mostWatchers)
	for range mostWatchers {
		g.Do(func(ctx context.Context) {
			admin.OverSocket(r.path).Download(ctx, "/v1/watch", &Lines{Each: func(l Line) error {
				if l.What == Listed {
					listed.Done()
				}
				return nil
			}})
		})
	}
	listed.Wait()
	if _, err := words(t, r, func(Line) bool { return true }); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("one more: %v", err)
	}
	if st := r.Status(); st.Watchers != mostWatchers {
		t.Errorf("%d watchers", st.Watchers)
	}
	cancel()
	_ = g.Wait()
	runtest.Eventually(t, "places are given back", func() bool { return r.seats(0) == 0 })
}

// TestTheEndDoesNotWaitForAReader who does not read.
func TestTheEndDoesNotWaitForAReader(t *testing.T) {
	r := serve(t)
	r.say(members(200, 1)) // more than any buffer of a socket
	conn, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/watch HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "it is followed", func() bool { return r.seats(0) == 1 })
	r.stop()
}

func TestLinesRefuseWhatIsNone(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "hello\n", "no end": strings.Repeat("x", lineBytes+1), "a tier of nobody": `{"what":"joined","member":{"tier":"x"}}` + "\n"} {
		l := &Lines{Each: func(Line) error { return nil }}
		if _, err := l.Write([]byte(text)); !fault.Has(err, fault.CodeServiceAway) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// In whatever pieces they come.
	n := 0
	l := &Lines{Each: func(Line) error { n++; return nil }}
	for _, c := range []byte(`{"what":"listed"}` + "\n" + `{"what":"lost"}` + "\n") {
		if _, err := l.Write([]byte{c}); err != nil {
			t.Fatal(err)
		}
	}
	if n != 2 {
		t.Errorf("%d lines", n)
	}
}
