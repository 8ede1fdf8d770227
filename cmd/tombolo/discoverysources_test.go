// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestSourceNews: each change of a source is told once, and that one is well from the
// beginning is none.
func TestSourceNews(t *testing.T) {
	s := func(name string, state discoveryclient.State, reason string) discoveryclient.Status {
		return discoveryclient.Status{Source: name, Kind: discoveryclient.KindService, State: state, Reason: reason}
	}
	last := map[string]string{}
	for i, c := range []struct {
		now  []discoveryclient.Status
		want []string
	}{
		{[]discoveryclient.Status{s("one", discoveryclient.StateConnecting, ""), s("two", discoveryclient.StateAttending, "")}, nil},
		{[]discoveryclient.Status{s("one", discoveryclient.StateAway, "refused"), s("two", discoveryclient.StateAttending, "")}, []string{"warning: one is away: refused; known members stay, and it is tried again"}},
		{[]discoveryclient.Status{s("one", discoveryclient.StateAway, "refused"), s("two", discoveryclient.StateAttending, "")}, nil},
		{[]discoveryclient.Status{s("one", discoveryclient.StateAttending, ""), s("two", discoveryclient.StateAway, "gone")}, []string{"note: one tells of members again", "warning: two is away: gone; known members stay, and it is tried again"}},
		{[]discoveryclient.Status{{Source: "cache", Kind: discoveryclient.KindCache, State: discoveryclient.StateBroken}}, nil},
	} {
		if got := sourceNews(last, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

func TestNobody(t *testing.T) {
	service := discoveryclient.Status{Kind: discoveryclient.KindService, State: discoveryclient.StateAttending, Settled: true}
	junk, away, unsettled, refuses := service, service, service, service
	unsettled.Settled, refuses.Refused = false, "store_unavailable"
	junk.Junk, away.State = 3, discoveryclient.StateAway
	for _, c := range []struct {
		what string
		list announce.List
		want string
	}{
		{"somebody", announce.List{Members: []roster.Member{{}}, Sources: []discoveryclient.Status{service}}, ""},
		{"the service is away", announce.List{Sources: []discoveryclient.Status{away}}, ""},
		{"the service began without its state", announce.List{Sources: []discoveryclient.Status{unsettled}}, ""},
		{"the service takes nothing", announce.List{Sources: []discoveryclient.Status{refuses}}, ""},
		{"one of two is well", announce.List{Sources: []discoveryclient.Status{refuses, service}}, "secret show"},
		{"nobody", announce.List{Sources: []discoveryclient.Status{service}}, "secret show"},
		{"others under another secret", announce.List{Sources: []discoveryclient.Status{junk}}, "3 entries are sealed with another one"},
	} {
		if got := nobody(c.list); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.what, got)
		}
	}
}

// TestVerbsSayWhatIsWrong: an announcement says that it attends, a list without members
// what to look at, and a watch that its service is away and there again.
func TestVerbsSayWhatIsWrong(t *testing.T) {
	svc := cluster{updates: make(chan *pb.AffiliateUpdateRequest, 100), deletes: make(chan string, 100)}
	serve := func(address string) (string, func()) {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		srv, served := grpc.NewServer(), make(chan struct{})
		pb.RegisterClusterServer(srv, svc)
		go func() { defer close(served); srv.Serve(ln) }()
		return ln.Addr().String(), func() { srv.Stop(); <-served }
	}
	address, stop := serve(runtest.Address(0))
	config, _, dir := meshFiles(t, ", services: [{url: 'http://"+address+"', insecure: true, proxy: none, protocol: sidero}]")
	begin := func(args ...string) (errs *runtest.Transcript, end func()) {
		ctx, cancel := context.WithCancel(runtest.Within(t))
		var out runtest.Transcript
		errs = new(runtest.Transcript)
		done := make(chan int, 1)
		go func() {
			done <- execute(ctx, append([]string{"discovery"}, args...), strings.NewReader(""), &out, errs)
		}()
		return errs, func() {
			cancel()
			if code := <-done; code != 0 {
				t.Errorf("%v ended with %d: %s", args, code, errs.String())
			}
		}
	}
	errs, end := begin("announce", "--config", config)
	runtest.Eventually(t, "that it attends", func() bool { return strings.Contains(errs.String(), "attending the discovery service") })
	end()
	if n := strings.Count(errs.String(), "attending the discovery service"); n != 1 {
		t.Errorf("it says so %d times", n)
	}

	r := tombolo(t, "discovery", "members", "--secret-file", filepath.Join(dir, "secret"), "--cluster-id", "x",
		"--service", "http://"+address, "--insecure", "--protocol", "sidero", "--attend", "--wait", "1m")
	if r.code != 0 || !strings.Contains(r.err, "nobody else is here under this secret") {
		t.Errorf("%+v", r)
	}

	stop()
	errs, end = begin("watch", "--attend", "--wait", "100ms", "--config", config)
	defer end()
	runtest.Eventually(t, "that the service is away", func() bool { return strings.Contains(errs.String(), "warning: "+address+" is away") })
	_, stop = serve(address)
	defer stop()
	runtest.Eventually(t, "that it is there again", func() bool { return strings.Contains(errs.String(), "note: "+address+" tells of members again") })
	if n := strings.Count(errs.String(), "is away"); n != 1 {
		t.Errorf("it says %d times that the service is away", n)
	}
}
