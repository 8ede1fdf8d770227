// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func TestWhomIsAsked(t *testing.T) {
	const of, standard = "/of/announce/announce.sock", "/run/tombolo/announce/announce.sock"
	for _, c := range []struct {
		name  string
		flags lookupFlags
		env   string
		there string
		want  asked
		code  fault.Code
	}{
		{"nothing is said", lookupFlags{}, "", "", asked{}, fault.CodeUsage},
		{"the default one", lookupFlags{}, "", standard, asked{standard, true}, ""},
		{"a flag", lookupFlags{socket: "/s", config: "c"}, "/e", standard, asked{"/s", true}, ""},
		{"the environment", lookupFlags{}, "/e", standard, asked{"/e", true}, ""},
		{"the configuration's, not the environment's", lookupFlags{config: "c"}, "/e", of, asked{of, false}, ""},
		{"the configuration's does not run", lookupFlags{config: "c"}, "/e", standard, asked{}, ""},
		{"attend", lookupFlags{config: "c", attend: true}, "/e", of, asked{}, ""},
		{"a secret", lookupFlags{secretFile: "f", services: []string{"u"}}, "/e", standard, asked{}, ""},
		{"a service without a secret", lookupFlags{services: []string{"u"}}, "/e", standard, asked{}, ""}, // load says what is missing
		{"a flag and a secret", lookupFlags{socket: "/s", secretFile: "f"}, "", "", asked{}, fault.CodeUsage},
		{"a flag and attend", lookupFlags{socket: "/s", attend: true}, "", "", asked{}, fault.CodeUsage},
		{"a bad configuration", lookupFlags{config: "bad"}, "", standard, asked{}, fault.CodeConfig},
	} {
		got, err := c.flags.whom(c.env, func(path string) bool { return path == c.there }, func() (string, error) {
			if c.flags.config == "bad" {
				return "", fault.New(fault.CodeConfig, "bad")
			}
			return "/of", nil
		})
		if got != c.want || (err == nil) != (c.code == "") || c.code != "" && !fault.Has(err, c.code) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestWhoseStatus(t *testing.T) {
	for _, c := range []struct{ of, socket, there, want string }{
		{"", "", "", "S"}, {"", "", "S", "S"}, {"", "", "M", "M"}, {"", "", "SM", "S both"},
		{"announce", "", "SM", "M"}, {"service", "", "M", "S"}, {"announce", "/x", "S", "/x"},
	} {
		path, both := statusSocket(c.of, c.socket, "S", "M", func(p string) bool { return strings.Contains(c.there, p) })
		if both {
			path += " both"
		}
		if path != c.want {
			t.Errorf("%+v: %s", c, path)
		}
	}
}

// TestSocketsThatGiveNoAnswer: one that hangs keeps nobody waiting, and of one whose
// answer cannot be read it is said why.
func TestSocketsThatGiveNoAnswer(t *testing.T) {
	serve := func(name, text string) string {
		socket := filepath.Join(t.TempDir(), name)
		ln, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(context.Background())
		t.Cleanup(func() { ln.Close(); g.Stop(); g.Wait() })
		g.Do(func(context.Context) {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if text != "" {
					conn.Read(make([]byte, 1)) // what is sent before a question is no answer
				}
				conn.Write([]byte(text))
			}
		})
		return socket
	}
	mute, junk := serve("mute", ""), serve("junk", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"kind\":1")
	var out json.RawMessage
	if err := askSocket(runtest.Within(t), time.Millisecond, at{socket: mute}, "/v1/status", &out); !fault.Has(err, fault.CodeServiceAway) || !strings.Contains(err.Error(), "nothing came for 1ms") {
		t.Errorf("of one that hangs: %v", err)
	}
	for _, verb := range []string{"status", "members"} {
		wantExit(t, tombolo(t, "discovery", verb, "--admin-socket", junk), 3, "discovery_unreachable", "JSON")
	}
	was := fault.New(fault.CodeHubAway, "the answer cannot be read").Whyf("it has more than 7 bytes") // without a cause
	if err := memberAway(was, "s"); !strings.Contains(err.Error(), "more than 7 bytes") {
		t.Errorf("why is lost: %v", err)
	}
}

// TestWhoFollowsHearsOfSilence: once, and of its end.
func TestWhoFollowsHearsOfSilence(t *testing.T) {
	frozen := fault.New(fault.CodeServiceAway, "whoever serves s does not answer").Whyf("nothing came").Hint("see whether it is stopped")
	synctest.Test(t, func(t *testing.T) {
		answers := []error{nil, frozen, frozen, fault.New(fault.CodeHubAway, "gone"), nil, nil, frozen}
		var said []string
		ctx, cancel := context.WithCancel(t.Context())
		overhear(ctx, func(context.Context) error {
			if len(answers) == 0 {
				cancel()
				return frozen
			}
			err := answers[0]
			answers = answers[1:]
			return err
		}, func(text string) { said = append(said, text) })
		want := []string{
			"warning: whoever serves s does not answer: nothing came; it is followed on. see whether it is stopped",
			"note: the socket answers again",
			"warning: whoever serves s does not answer: nothing came; it is followed on. see whether it is stopped",
		}
		if !slices.Equal(said, want) {
			t.Errorf("%q", said)
		}
	})
}

// TestAskTheAnnouncement: what runs is asked, and its sources are not attended again.
func TestAskTheAnnouncement(t *testing.T) {
	config, _, dir := meshFiles(t, "")
	cfg, err := discoveryclient.ParseConfig(config, mustRead(t, config))
	if err != nil {
		t.Fatal(err)
	}
	socket := announce.AdminSocket(cfg.RunDir)
	wantExit(t, tombolo(t, "discovery", "members", "--admin-socket", socket), 3, "discovery_unreachable", "start it")
	wantExit(t, tombolo(t, "discovery", "watch", "--admin-socket", socket), 3, "discovery_unreachable", "start it")
	wantExit(t, tombolo(t, "discovery", "status", "--admin-socket", socket), 3, "discovery_unreachable", "--admin-socket")
	p := startProcess(t, "discovery", "announce", "--config", config)
	p.Says(t, "announcing this node")

	o := tombolo(t, "discovery", "members", "--config", config)
	if o.code != 0 || o.err != "" || !strings.Contains(o.out, "fd00::b") {
		t.Fatalf("%+v", o)
	}
	must(t, "discovery", "members", "--config", config, "--attend")
	t.Setenv(announceSocket, socket)
	for _, say := range []string{"overlay6", "fd00::b", "static/" + filepath.Join(dir, "members.yaml")} {
		if facts := must(t, "discovery", "members", "b"); !strings.Contains(facts, say) {
			t.Errorf("the facts do not say %q:\n%s", say, facts)
		}
	}
	var list announce.List
	strictly(t, must(t, "discovery", "members", "-o", "json"), &list)
	var attended announce.List
	strictly(t, must(t, "discovery", "members", "-o", "json", "--config", config, "--attend"), &attended)
	if fmt.Sprint(list.Members[0].Facts) != fmt.Sprint(attended.Members[0].Facts) || list.Kind != attended.Kind || len(list.Sources) != 2 {
		t.Errorf("%+v is not %+v", list, attended)
	}
	wantExit(t, tombolo(t, "discovery", "members", "nobody"), 1, "not_found")

	text := must(t, "discovery", "status", "--of", "announce")
	for _, say := range []string{"announcing node a ", "lease 30m0s", "cluster t1-", "2 members known beside it", "members.yaml", "file", "attending", "cache"} {
		if !strings.Contains(text, say) {
			t.Errorf("the status does not say %q:\n%s", say, text)
		}
	}
	var st announce.Status
	strictly(t, must(t, "discovery", "status", "--admin-socket", socket, "-o", "json"), &st)
	if st.Kind != announce.KindStatus || st.Members != 2 || st.Node != "a" {
		t.Errorf("%+v", st)
	}
	wantExit(t, tombolo(t, "discovery", "status", "--of", "announce", "--cluster", "x"), 2, "--cluster")
	wantExit(t, tombolo(t, "discovery", "status", "--of", "hub"), 2, "--of")

	for _, c := range []struct {
		signal syscall.Signal
		says   string
	}{{syscall.SIGTERM, "error: draining: "}, {syscall.SIGKILL, "error: discovery_unreachable: "}} {
		args := []string{"discovery", "watch"}
		if c.signal == syscall.SIGKILL { // what it followed is gone: that it could ask the sources itself is another thing
			args = append(args, "--config", config)
		}
		w := startProcess(t, args...)
		runtest.Eventually(t, "the list", func() bool { return strings.Contains(w.Out.String(), "listed") })
		p.Process.Signal(c.signal)
		if code := w.Exit(t); code != 3 || !strings.HasPrefix(w.Err.String(), c.says) || !strings.Contains(w.Err.String(), "\nhint: ") {
			t.Errorf("after %v: exit %d, %s", c.signal, code, w.Err.String())
		}
		p.Exit(t)
		if c.signal == syscall.SIGKILL {
			break
		}
		p = startProcess(t, "discovery", "announce", "--config", config)
		p.Says(t, "announcing this node")
	}
	// The socket of the killed one is left behind. Who knows the configuration goes on without it.
	if o := tombolo(t, "discovery", "members", "--config", config); o.code != 0 || !strings.Contains(o.out, "fd00::b") || !strings.HasPrefix(o.err, "note: ") {
		t.Errorf("%+v", o)
	}
	wantExit(t, tombolo(t, "discovery", "members"), 3, "discovery_unreachable")
	p = startProcess(t, "discovery", "announce", "--config", config)
	p.Says(t, "announcing this node") // the leftover is in nobody's way
	wantExit(t, tombolo(t, "discovery", "announce", "--config", secondOf(t, config)), 1, "socket_in_use", "node.runDir")
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// secondOf is a configuration with another health port.
func secondOf(t *testing.T, config string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(string(mustRead(t, config))) {
		if !strings.HasPrefix(line, "healthListen") {
			lines = append(lines, strings.Replace(line, "stateDir: ", "stateDir: "+t.TempDir(), 1))
		}
	}
	second := config + ".second"
	if err := os.WriteFile(second, []byte(strings.Join(lines, "")+"healthListen: "+runtest.Address(8448)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return second
}

// TestTheStatusTellsOfServices: one that does not answer, with its code.
func TestTheStatusTellsOfServices(t *testing.T) {
	config, _, _ := meshFiles(t, ", services: [{url: 'https://"+runtest.Address(9)+"', name: gone, proxy: none}]")
	cfg, err := discoveryclient.ParseConfig(config, mustRead(t, config))
	if err != nil {
		t.Fatal(err)
	}
	socket := announce.AdminSocket(cfg.RunDir)
	p := startProcess(t, "discovery", "announce", "--config", config)
	p.Says(t, "announcing this node")
	var st announce.Status
	runtest.Eventually(t, "the error is seen", func() bool {
		st = announce.Status{}
		if err := json.Unmarshal([]byte(must(t, "discovery", "status", "--admin-socket", socket, "-o", "json")), &st); err != nil {
			t.Fatal(err)
		}
		return st.Sources[0].LastError != nil
	})
	if s := st.Sources[0]; s.Source != "gone" || s.State != discoveryclient.StateAway || s.LastError.Code != fault.CodeServiceAway || s.LastError.Reason == "" || !s.Announced.IsZero() {
		t.Errorf("%+v", s)
	}
	if text := must(t, "discovery", "status", "--admin-socket", socket); !strings.Contains(text, "away") || !strings.Contains(text, "ago: discovery_unreachable: ") {
		t.Errorf("the status does not say why:\n%s", text)
	}
	o := tombolo(t, "discovery", "members", "--admin-socket", socket, "--wait", "10ms")
	if o.code != 0 || !strings.Contains(o.err, "warning: gone has not told all it knows: the discovery service gone could not be used") {
		t.Errorf("%+v", o)
	}
}

// told is a source that says what the test has it say.
type told struct{ say chan []roster.Said }

func (s told) Run(ctx context.Context, out func([]roster.Said)) error {
	for {
		select {
		case said := <-s.say:
			out(said)
		case <-ctx.Done():
			return nil
		}
	}
}

// TestASlowReaderListsAgain: whoever reads the command's output too slowly is told
// that he has lost something, and sees what is so now.
func TestASlowReaderListsAgain(t *testing.T) {
	config, _, _ := meshFiles(t, "")
	cfg, err := discoveryclient.ParseConfig(config, mustRead(t, config))
	if err != nil {
		t.Fatal(err)
	}
	source := told{make(chan []roster.Said)}
	log := slog.New(slog.DiscardHandler)
	m, err := discoveryclient.New(cfg, discoveryclient.Options{Log: log, Reg: prometheus.NewRegistry(), Sources: []discoveryclient.Source{source}})
	if err != nil {
		t.Fatal(err)
	}
	socket := announce.AdminSocket(filepath.Join(runtest.Dir(t), "r"))
	ln, err := listener.ListenUnix("node.runDir", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background())
	g.Go("member", m.Run)
	announce.New(m, "1").Serve(g, ln, log)
	defer func() {
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}()
	many := func(turn int) (out []roster.Said) {
		for i := range 40 {
			f := member.Facts{ID: fmt.Sprint("n", i), Node: fmt.Sprint("n", i)}
			for j := range 1000 {
				f.Ranges = append(f.Ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(turn), byte(j >> 8), byte(j)}), 32))
			}
			out = append(out, roster.Said{Source: roster.Source{Tier: roster.TierStatic, Name: "test"}, Facts: f})
		}
		return out
	}
	final := roster.Said{Source: roster.Source{Tier: roster.TierStatic, Name: "test"}, Facts: member.Facts{ID: "last", Node: "last"}}
	enough := errors.New("enough")
	lists, lost, turn, known := 0, 0, 0, map[string]bool{}
	_, err = follow(runtest.Within(t), at{socket: socket}, func(l announce.Line) error {
		switch l.What {
		case announce.Lost:
			lost++
			clear(known)
			source.say <- []roster.Said{final}
			m.Merged()
		case announce.Listed:
			lists++
		case roster.Joined:
			known[l.Member.Node] = true
		case roster.Left:
			delete(known, l.Member.Node)
		}
		if lists > 0 && lost == 0 { // for each line that it reads, 40 more come
			turn++
			source.say <- many(turn)
			m.Merged()
		}
		if lists > lost && lost > 0 && known["last"] && !known["n0"] {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || lists < 2 || lost != lists-1 {
		t.Errorf("%v after %d lists, %d times lost", err, lists, lost)
	}
}
