// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	t.Parallel()
	kubetest.Contract(t, kubetest.New(t))
}

// object is a Member with a number; lease 0 has none.
func object(n byte, lease int) string {
	f := kubetest.Facts(n)
	spec, err := json.Marshal(roster.Spec(f))
	if err != nil {
		panic(err) // of the test's own making
	}
	text := strings.TrimSuffix(string(spec), "}")
	if lease > 0 {
		text += fmt.Sprintf(`,"renewTime":"2026-01-02T03:04:%02dZ","leaseSeconds":%d`, n%60, lease)
	}
	return `{"metadata":{},"spec":` + text + `}}`
}

// world is a server with some members, and one who reads them.
func world(t *testing.T, n int, lease int) (*kubetest.Server, *kubetest.Reader) {
	t.Helper()
	s := kubetest.New(t)
	for i := range n {
		s.Put(kubetest.Members, name(i), object(byte(i+1), lease))
	}
	r := kubetest.Start(t, s.Client(t, "reader"), kube.Options{})
	runtest.Eventually(t, "all members", func() bool { return len(r.Said()) == n })
	r.Watch()
	return s, r
}

func name(i int) string { return fmt.Sprintf("n%03d", i) }

// TestForgottenVersion: a watch whose version is not known any more becomes a list, of which nobody notices.
func TestForgottenVersion(t *testing.T) {
	t.Parallel()
	s, r := world(t, 5, 60)
	for i := range byte(3) {
		s.Forget()
		s.Put(kubetest.Members, "n000", object(20+i, 60))
		runtest.Eventually(t, "the news", func() bool { return r.Knows("n000", 20+i) })
	}
	if r.Fewest() != 5 || s.Requests("LIST", kubetest.Members) < 4 {
		t.Errorf("%d members at the least, %d lists", r.Fewest(), s.Requests("LIST", kubetest.Members))
	}
	if strings.Contains(r.Log.String(), "WARN") {
		t.Errorf("nothing is wrong, and yet:\n%s", r.Log)
	}
}

// TestCutList: of a list that comes to no end nothing is taken; those whom it did not reach live on.
func TestCutList(t *testing.T) {
	t.Parallel()
	const all = kube.KubePage + 50
	s, r := world(t, all, 0) // without a lease nothing else would keep them
	var cuts atomic.Int32
	s.Mangle(func(req *http.Request, _ http.ResponseWriter) bool {
		if req.URL.Query().Get("continue") != "" && cuts.Add(1) <= 2 {
			s.Forget()
		}
		return false
	})
	s.Forget()
	s.Put(kubetest.Members, "n149", object(200, 0))
	runtest.Eventually(t, "the end of a list", func() bool { return r.Knows("n149", 200) })
	if cuts.Load() < 3 || r.Fewest() != all {
		t.Errorf("%d lists were cut, and %d members were left", cuts.Load(), r.Fewest())
	}
}

// TestAway: an API server that is away, or speaks nonsense, ends nobody, and is told of once.
func TestAway(t *testing.T) {
	t.Parallel()
	s, r := world(t, 3, 60)
	s.Away(true)
	runtest.Eventually(t, "a failure", func() bool { return r.Part("members").Err != nil })
	if p := r.Part("members"); !fault.Has(p.Err, fault.CodeKubeAway) || p.Objects != 3 || p.Contact.IsZero() {
		t.Errorf("%+v", p)
	}
	tries := s.Requests("WATCH", kubetest.Members)
	runtest.Eventually(t, "two more tries", func() bool { return s.Requests("WATCH", kubetest.Members) >= tries+2 })
	if n := r.Log.Count("WARN"); n != 1 || r.Fewest() != 3 {
		t.Errorf("%d members were left; said %d times:\n%s", r.Fewest(), n, r.Log)
	}
	s.Away(false)
	s.Put(kubetest.Members, "n001", object(9, 60))
	runtest.Eventually(t, "the news", func() bool { return r.Knows("n001", 9) && r.Part("members").Err == nil })
}

// TestLostStore: an API server that comes back empty ends no lease.
func TestLostStore(t *testing.T) {
	t.Parallel()
	s, r := world(t, 3, 60)
	s.Put(kubetest.Members, "stated", object(9, 0))
	runtest.Eventually(t, "the one without a lease", func() bool { return r.Knows("stated", 9) })
	lists := s.Requests("LIST", kubetest.Members)
	s.Lose(kubetest.Members)
	runtest.Eventually(t, "an empty list", func() bool { return s.Requests("LIST", kubetest.Members) > lists && len(r.Said()) == 3 })
	left, next := roster.Expire(time.Now(), r.Said())
	if len(left) != 3 || next.IsZero() || time.Until(next) > time.Minute {
		t.Errorf("%d live, until %v", len(left), next)
	}
	s.Put(kubetest.Members, "n002", object(30, 60))
	runtest.Eventually(t, "one who is back", func() bool { return r.Knows("n002", 30) })
}

// TestDiedBefore: who comes later does not take the dead for living, whatever the clocks say.
func TestDiedBefore(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{0, -1000 * time.Hour, 1000 * time.Hour} {
		s := kubetest.New(t)
		ago := func(d time.Duration) func() time.Time {
			return func() time.Time { return time.Now().Add(off - d) }
		}
		s.Clock(ago(time.Hour))
		s.Put(kubetest.Members, "dead", object(1, 600))
		s.Clock(ago(5 * time.Minute))
		s.Put(kubetest.Members, "alive", object(2, 600))
		s.Clock(ago(0))
		r := kubetest.Start(t, s.Client(t, "reader"), kube.Options{})
		runtest.Eventually(t, "both", func() bool { return len(r.Said()) == 2 })
		left, next := roster.Expire(time.Now(), r.Said())
		if len(left) != 1 || left[0].Facts.ID != "alive" {
			t.Errorf("clock off by %v: %+v live", off, left)
		}
		if d := time.Until(next); d > 5*time.Minute+5*time.Second {
			t.Errorf("clock off by %v: alive for another %v", off, d)
		}
		s.Put(kubetest.Members, "dead", object(3, 600))
		runtest.Eventually(t, "the dead one's return", func() bool {
			left, _ := roster.Expire(time.Now(), r.Said())
			return len(left) == 2 && r.Knows("dead", 3)
		})
		r.Stop()
	}
}

// TestHostileObjects: what one node writes into its object harms no other, and fills no log.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	s, r := world(t, 2, 60)
	long := strings.Repeat("x", 100_000)
	for i, text := range []string{
		`{}`, `{"spec":null}`, `{"spec":[]}`, `{"spec":{"ranges":"all"}}`, `{"spec":{"ranges":["0.0.0.0/0","1.2.3.4/8"]}}`,
		`{"spec":{"leaseSeconds":-1}}`, `{"spec":{"leaseSeconds":99999999}}`, `{"spec":{"leaseSeconds":1e99}}`,
		`{"spec":{"publicKey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}}`, `{"spec":{"nodename":"n000"}}`,
		`{"spec":{"hostname":"` + long + `"}}`, `{"spec":{"hostname":"\u001b[2J"}}`, `{"spec":{"overlay6":"::ffff:1.2.3.4"}}`,
		`{"spec":{"addresses":["127.0.0.1"]}}`, `{"spec":{"endpoints":["1.2.3.4:0"]}}`, `{"metadata":{"annotations":{"a":"` + long + `"}},"spec":{}}`,
	} {
		for range 3 {
			s.Put(kubetest.Members, fmt.Sprintf("bad%02d", i), text)
		}
	}
	s.Put(kubetest.Members, "n001", object(9, 60))
	runtest.Eventually(t, "the news of another", func() bool { return r.Knows("n001", 9) })
	for _, said := range r.Said() {
		if f := said.Facts; strings.HasPrefix(f.ID, "bad") && (len(f.Ranges) > 0 || f.Hostname != "" || f.Nodename != f.ID || f.Key != (member.Key{})) {
			t.Errorf("it counts: %+v", f)
		}
	}
	p := r.Part("members")
	if n := r.Log.Count("WARN"); n != p.Bad || p.Bad < 12 || r.Fewest() < 2 {
		t.Errorf("%d are bad, said %d times; %d members at the least\n%s", p.Bad, n, r.Fewest(), r.Log)
	}
	if strings.ContainsRune(r.Log.String(), '\x1b') || strings.Contains(r.Log.String(), long[:1000]) {
		t.Error("the log shows what a stranger wrote as it is")
	}
	s.Put(kubetest.Members, "n000", `{"spec":{"ranges":["x"]}}`)
	runtest.Eventually(t, "n000's mistake", func() bool { return !r.Knows("n000", 1) })
	s.Put(kubetest.Members, "n000", object(1, 60))
	runtest.Eventually(t, "its correction", func() bool { return r.Knows("n000", 1) })
}

// TestFatPages: a page beyond the bound is asked for in smaller ones.
func TestFatPages(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	for i := range 30 {
		s.Put(kubetest.Members, name(i), object(byte(i+1), 60))
	}
	fat := []byte(strings.Repeat(" ", 1<<20))
	s.Mangle(func(r *http.Request, w http.ResponseWriter) bool {
		var n int
		if _, err := fmt.Sscan(r.URL.Query().Get("limit"), &n); err != nil || n <= 8 {
			return false
		}
		if n < kube.KubePage { // once without saying so before, then with
			w.Header().Set("Content-Length", fmt.Sprint(kube.KubePageBytes+1))
			return true
		}
		for range kube.KubePageBytes>>20 + 1 {
			if _, err := w.Write(fat); err != nil {
				return true
			}
		}
		return true
	})
	r := kubetest.Start(t, s.Client(t, "reader"), kube.Options{})
	runtest.Eventually(t, "all members", func() bool { return len(r.Said()) == 30 })
}

// TestHostileServer: nonsense in the place of an answer costs a try each, and nobody's life.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	caught := make(chan string, 100)
	elsewhere := catcher(t, caught)
	for what, answer := range map[string]func(w http.ResponseWriter){
		"a redirect":          func(w http.ResponseWriter) { w.Header().Set("Location", elsewhere); w.WriteHeader(302) },
		"a page for people":   func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") },
		"nothing":             func(w http.ResponseWriter) { w.WriteHeader(200) },
		"null":                func(w http.ResponseWriter) { fmt.Fprint(w, "null") },
		"an event of nothing": func(w http.ResponseWriter) { fmt.Fprintln(w, `{"type":"DELETED","object":null}`) },
		"a removal of all": func(w http.ResponseWriter) {
			fmt.Fprintln(w, `{"type":"DELETED","object":{"metadata":{"resourceVersion":"7"}}}`)
		},
		"an error with escapes": func(w http.ResponseWriter) { w.WriteHeader(500); fmt.Fprint(w, "{\"message\":\"\x1b[2J\"}") },
		"a line without end": func(w http.ResponseWriter) {
			for range 4 << 10 {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, r := world(t, 3, 60)
			var answers atomic.Int32
			s.Mangle(func(_ *http.Request, w http.ResponseWriter) bool {
				answers.Add(1)
				answer(w)
				return true
			})
			s.Forget()
			runtest.Eventually(t, "an answer of that kind", func() bool { return answers.Load() > 0 })
			s.Mangle(nil)
			s.Put(kubetest.Members, "n001", object(9, 60))
			runtest.Eventually(t, "the news", func() bool { return r.Knows("n001", 9) })
			if r.Fewest() != 3 || strings.ContainsRune(r.Log.String(), '\x1b') {
				t.Errorf("%d members were left; said:\n%s", r.Fewest(), r.Log)
			}
		})
	}
	t.Cleanup(func() {
		select {
		case header := <-caught:
			t.Errorf("the redirect was followed, with %q", header)
		default:
		}
	})
}

// TestRotation: a token that was replaced in its file is taken up.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.Put(kubetest.Members, "n000", object(1, 60))
	dir := t.TempDir()
	write := func(file, text string) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("token", "old\n")
	path := write("kubeconfig", strings.Replace(string(s.Kubeconfig("x")), `token: "x"`, "tokenFile: token", 1))
	a, err := kube.Load(path, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	s.Mangle(func(r *http.Request, w http.ResponseWriter) bool {
		if r.Header.Get("Authorization") == "Bearer new" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	r := kubetest.Start(t, kube.NewClient(a, nil), kube.Options{})
	runtest.Eventually(t, "the refusal", func() bool { return fault.Has(r.Part("members").Err, fault.CodeKubeDenied) })
	write("token", "new\n")
	runtest.Eventually(t, "n000", func() bool { return r.Knows("n000", 1) })
	if strings.Contains(r.Log.String(), "Bearer") {
		t.Errorf("the token is in the log:\n%s", r.Log)
	}
}

func TestOptions(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, limit.DiscoveryTTL + 1, -time.Minute} {
		if _, err := kube.New(nil, kube.Options{Lease: lease}); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("a lease of %v: %v", lease, err)
		}
	}
}

// catcher catches the credentials of whoever comes.
func catcher(t *testing.T, caught chan<- string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { caught <- r.Header.Get("Authorization") }))
	t.Cleanup(s.Close)
	return s.URL
}

// TestAWatchThatStandsSaysNothing: an API server that is back, and of which nothing is new, is not away any longer.
func TestAWatchThatStandsSaysNothing(t *testing.T) {
	t.Parallel()
	s, r := world(t, 2, 0)
	s.Mangle(func(r *http.Request, w http.ResponseWriter) bool {
		if r.URL.Query().Get("watch") == "" {
			return false
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	})
	s.Away(true)
	runtest.Eventually(t, "the failure", func() bool { return r.Part("members").Err != nil })
	s.Away(false)
	runtest.Eventually(t, "its end", func() bool { return r.Part("members").Err == nil })
}
