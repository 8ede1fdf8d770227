// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/net/http2"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// parse reads flags; environment has the variables.
func parse(t *testing.T, environment map[string]string, args ...string) (o Options) {
	t.Helper()
	fl := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	o.Flags(fl, func(name string) string { return environment[name] })
	if err := fl.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestWanted is how many servers an agent shall have.
func TestWanted(t *testing.T) {
	for _, c := range []struct {
		said, leased int
		leases       bool
		source       string
		want         int
	}{
		{3, 0, false, "default", 3},
		{3, 5, false, "max", 3}, // nobody counts leases
		{3, 5, true, "default", 5},
		{5, 3, true, "default", 3},
		{5, 3, true, "", 3},
		{3, 5, true, "max", 5},
		{5, 3, true, "max", 5},
		{0, 0, true, "max", 1},
		{0, 0, false, "default", 1},
		{3, 0, true, "default", 1},
	} {
		if got := wanted(c.said, c.leased, c.leases, c.source); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestServerCountSource is what the flag does to what an agent that counts leases wants.
func TestServerCountSource(t *testing.T) {
	for flag, want := range map[string]int{"--server-count-source=": 2, "--server-count-source=default": 2,
		"--server-count-source=max": 3} {
		a, err := New(parse(t, nil, flag), Deps{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		a.leases = func(context.Context) (int, error) { return 2, nil }
		a.count(t.Context())
		a.said = 3
		if _, got := a.counts(); got != want {
			t.Errorf("%s: %d servers are wanted, not %d", flag, got, want)
		}
	}
}

// TestAgentID: a flag goes before PROXY_AGENT_ID, and a random one comes last.
func TestAgentID(t *testing.T) {
	environment := map[string]string{"PROXY_AGENT_ID": "by-environment"}
	if got := parse(t, environment).AgentID; got != "by-environment" {
		t.Errorf("by the environment it is %q", got)
	}
	if got := parse(t, environment, "--agent-id=by-flag").AgentID; got != "by-flag" {
		t.Errorf("by the flag it is %q", got)
	}
	if one, other := parse(t, nil).AgentID, parse(t, nil).AgentID; strings.Count(one, "-") != 4 || one == other {
		t.Errorf("by default it is %q, and %q", one, other)
	}
}

// TestKeepaliveFlag measures when a silent server is pinged.
func TestKeepaliveFlag(t *testing.T) {
	cert := runtest.Certificate(t)
	for flag, want := range map[string]time.Duration{"--v=4": keepaliveDefault, "--keepalive-time=17s": 17 * time.Second,
		"--keepalive-time=10m": 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			a, err := New(parse(t, nil, flag), Deps{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			near, far := net.Pipe()
			server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{cert}})
			defer far.Close()
			shaken := make(chan error, 1)
			go func() { shaken <- server.Handshake() }()
			conn := tls.Client(near, &tls.Config{InsecureSkipVerify: true})
			if err := conn.Handshake(); err != nil {
				t.Fatal(err)
			}
			if err := <-shaken; err != nil {
				t.Fatal(err)
			}
			cc, err := a.client(conn, place{"10.0.0.1:8091", "server"})
			if err != nil {
				t.Fatal(err)
			}
			defer cc.Close()
			begin := time.Now()
			cc.Connect()
			if took := firstPing(t, server).Sub(begin); took != want {
				t.Errorf("%s: a server is pinged after %v, not %v", flag, took, want)
			}
		})
	}
}

// firstPing is when a server that is silent after its first word gets a ping.
func firstPing(t *testing.T, conn net.Conn) time.Time {
	t.Helper()
	fr := http2.NewFramer(conn, conn)
	go fr.WriteSettings()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := f.(*http2.PingFrame); ok {
			return time.Now()
		}
	}
}
