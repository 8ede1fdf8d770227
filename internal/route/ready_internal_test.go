// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

func TestUnready(t *testing.T) {
	at := time.Unix(1000, 0)
	fresh, answers := hubState{}, hubState{answered: at}
	away := fresh.after(at, "hub_unreachable: no")
	lost := answers.after(at, "ca_mismatch: another")
	c := Cluster{Name: "c1", Hubs: []string{"h1:1", "h2:1"}}
	for _, one := range []struct {
		name      string
		hubs      []hubState
		what, why string
		next      time.Duration
	}{
		{"at the start", []hubState{fresh, fresh}, "no hub of cluster c1 has answered yet", "", 0},
		{"both answer", []hubState{answers, answers}, "", "", pingEvery},
		{"the second was not needed", []hubState{answers, fresh}, "", "", pingEvery},
		{"the second stands in", []hubState{away, answers}, "", "", pingEvery},
		{"the first is away", []hubState{away, fresh}, "no hub of cluster c1 answers", "h1:1: hub_unreachable: no", 0},
		{"both are away", []hubState{away, away.after(at, "x: y")}, "no hub of cluster c1 answers", "h1:1: hub_unreachable: no; h2:1: x: y", hubPause},
		{"both are lost", []hubState{lost, lost}, "no hub of cluster c1 answers", "h1:1: ca_mismatch: another; h2:1: ca_mismatch: another", hubPause},
	} {
		f := unready(c, one.hubs)
		switch {
		case one.what == "" && f != nil:
			t.Errorf("%s: %v", one.name, f)
		case one.what != "" && (f == nil || f.What != one.what || f.Why != one.why || f.Code != fault.CodeHubAway || f.Next == ""):
			t.Errorf("%s: %v", one.name, f)
		}
		if got := nextPing(one.hubs, at); got != one.next {
			t.Errorf("%s: the next after %v, want %v", one.name, got, one.next)
		}
	}
	if got := nextPing([]hubState{answers}, at.Add(pingEvery+1)); got != 0 {
		t.Errorf("long after an answer: %v", got)
	}
}

func TestFails(t *testing.T) {
	for code, want := range map[fault.Code]bool{
		fault.CodeHubAway: true, fault.CodeCAMismatch: true, fault.CodeCertRevoked: true, fault.CodeCertExpired: true,
		fault.CodeClockSkew: true, fault.CodeConfig: true,
		fault.CodeNoAgent: false, fault.CodeDraining: false, fault.CodePolicyDenied: false, fault.CodeDialRefused: false,
		fault.CodeDialTimeout: false, fault.CodeLimit: false,
	} {
		if fails(fault.New(code, "x")) != want {
			t.Errorf("%s: not %v", code, want)
		}
	}
}

// turningHub answers, or not, or says nothing at all.
type turningHub struct {
	code  atomic.Value // fault.Code
	pings atomic.Int32
}

func (h *turningHub) Connect(ctx context.Context, _, _ string) (net.Conn, error) {
	switch code := h.code.Load().(fault.Code); code {
	case "":
		near, far := net.Pipe()
		far.Close()
		return near, nil
	case fault.CodeDialTimeout:
		<-ctx.Done()
		return nil, fault.New(code, "no answer")
	default:
		return nil, fault.New(code, "no")
	}
}

func (h *turningHub) Ping(ctx context.Context) error {
	h.pings.Add(1)
	conn, err := h.Connect(ctx, "", "")
	if err == nil {
		conn.Close()
	}
	return err
}

// TestReadiness: without any caller it is known which clusters can be reached.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Configure(v1alpha1.RouteConfig{Clusters: []v1alpha1.RouteCluster{
			{Name: "c1", Hubs: []string{"h1:1", "h2:1"}, Certificate: "/none", Ranges: []v1alpha1.RouteRange{{Range: "10.1.0.0/16"}}},
			{Name: "c2", Hubs: []string{"h3:1"}, Certificate: "/none", Ranges: []v1alpha1.RouteRange{{Range: "10.2.0.0/16"}}},
		}}, func(path, format string, args ...any) { t.Errorf(path+": "+format, args...) })
		r := New(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
		h := [3]*turningHub{{}, {}, {}}
		is := func(i int, code fault.Code) { h[i].code.Store(code) }
		for i := range h {
			is(i, "")
		}
		for name, openers := range map[string][]opener{"c1": {h[0], h[1]}, "c2": {h[2]}} {
			r.doors[name].leaf, r.doors[name].openers = &tls.Certificate{}, openers
		}
		want := func(when, what, why string) {
			t.Helper()
			synctest.Wait()
			f := r.ready()
			if what == "" && f != nil || what != "" && (f == nil || f.What != what || !strings.Contains(f.Why, why)) {
				t.Errorf("%s: %v", when, f)
			}
		}
		want("before it runs", "no hub of cluster c1 has answered yet", "")
		is(2, fault.CodeHubAway)
		g := run.NewGroup(t.Context())
		for _, d := range r.doors {
			g.Do(func(ctx context.Context) { r.watch(ctx, d) })
		}
		want("a hub is away", "no hub of cluster c2 answers", "h3:1: hub_unreachable: no")
		is(2, "")
		time.Sleep(hubPause)
		want("it is back", "", "")
		if h[1].pings.Load() > 0 {
			t.Error("a hub that was not needed was asked")
		}
		before := h[0].pings.Load()
		for range 4 { // callers' dials are answers too
			time.Sleep(pingEvery / 2)
			conn, err := r.doors["c1"].open(t.Context(), "tcp", "10.1.0.1:80")
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		if n := h[0].pings.Load() - before; n > 0 {
			t.Errorf("it was asked %d times although it answered", n)
		}
		is(0, fault.CodeDialTimeout) // silent
		time.Sleep(pingEvery + pingWait)
		want("another stands in", "", "")
		is(1, fault.CodeCertRevoked)
		time.Sleep(pingEvery + 2*pingWait)
		want("none answers", "no hub of cluster c1 answers", "h2:1: certificate_revoked: no")
		pings := h[1].pings.Load()
		time.Sleep(time.Hour)
		if n := h[1].pings.Load() - pings; n < 50 || n > 65 {
			t.Errorf("in an hour it was asked %d times", n)
		}
		is(0, fault.CodePolicyDenied) // about a target: it answers
		time.Sleep(hubPauseMost + 2*pingWait)
		want("it answers again", "", "")
		is(0, fault.CodeHubAway)
		if _, err := r.doors["c1"].open(t.Context(), "tcp", "10.1.0.1:80"); err == nil {
			t.Error("a dial succeeded")
		}
		want("a caller has found out", "no hub of cluster c1 answers", "h1:1: hub_unreachable")
		is(0, "")
		time.Sleep(hubPause)
		want("it is asked soon", "", "")
		r.draining.Store(true)
		want("it drains", "routed mode is shutting down", "")
		g.Stop()
		g.Wait()
	})
}
