// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/net/http2"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// parse reads flags; environment has the variables.
func parse(t *testing.T, environment map[string]string, args ...string) (o Options) {
	t.Helper()
	fl := pflag.NewFlagSet("server", pflag.ContinueOnError)
	o.Flags(fl, func(name string) string { return environment[name] })
	if err := fl.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

// clusterCert writes the certificate shown to agents, and gives the flags of it and of a unix socket.
func clusterCert(t *testing.T) []string {
	t.Helper()
	c := runtest.Certificate(t)
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := runtest.Dir(t)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return []string{"--uds-name=" + filepath.Join(dir, "s"), "--server-port=0",
		"--cluster-cert=" + write("tls.crt", "CERTIFICATE", c.Certificate[0]),
		"--cluster-key=" + write("tls.key", "PRIVATE KEY", key)}
}

// inBubble is a server by its flags whose two ports are in memory.
func inBubble(t *testing.T, args []string, test func(t *testing.T, s *Server, frontend, agents *runtest.Memory)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(parse(t, nil, args...), Deps{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		frontend, agents := runtest.ListenMemory(), runtest.ListenMemory()
		served := make(chan error, 2)
		go func() { served <- s.serveFrontend(ctx, frontend) }()
		go func() { served <- s.agents.Serve(ctx, agents) }()
		test(t, s, frontend, agents)
		stop()
		for range cap(served) {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	})
}

// agentsPort connects to the agents' port.
func agentsPort(t *testing.T, agents *runtest.Memory, protocol string) *tls.Conn {
	t.Helper()
	raw, err := agents.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(carrier.Wrap(raw), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// firstPing is after how long a peer that is silent after its first word gets a ping.
func firstPing(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	begin := time.Now()
	go io.WriteString(conn, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and SETTINGS
	for fr := http2.NewFramer(conn, conn); ; {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
		if _, ok := f.(*http2.PingFrame); ok {
			return time.Since(begin)
		}
	}
}

// TestKeepaliveFlags measures when silent peers of both ports are pinged.
func TestKeepaliveFlags(t *testing.T) {
	base := clusterCert(t)
	for _, c := range []struct {
		args             []string
		frontend, agents time.Duration
	}{
		{nil, time.Hour, keepaliveDefault},
		{[]string{"--frontend-keepalive-time=19s", "--keepalive-time=17s"}, 19 * time.Second, 17 * time.Second},
	} {
		inBubble(t, append(base, c.args...), func(t *testing.T, _ *Server, frontend, agents *runtest.Memory) {
			agent := agentsPort(t, agents, "h2")
			defer agent.NetConn().Close()
			if took := firstPing(t, agent); took != c.agents {
				t.Errorf("%q: an agent is pinged after %v, not %v", c.args, took, c.agents)
			}
			caller, err := frontend.DialContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer caller.Close()
			if took := firstPing(t, caller); took != c.frontend {
				t.Errorf("%q: a caller is pinged after %v, not %v", c.args, took, c.frontend)
			}
		})
	}
}

// TestDialTimeoutFlag dials through an agent that does not answer.
func TestDialTimeoutFlag(t *testing.T) {
	base := clusterCert(t)
	for flag, want := range map[string]time.Duration{"--backend-dial-timeout=0": limit.Dial,
		"--backend-dial-timeout=3s": 3 * time.Second} {
		inBubble(t, append(base, flag), func(t *testing.T, s *Server, _, agents *runtest.Memory) {
			release := make(chan struct{})
			u, err := konnectivity.ConnectNative(t.Context(), agentsPort(t, agents, konnectivity.ALPN),
				konnectivity.UpstreamOptions{Log: slog.New(slog.DiscardHandler), AgentID: "a", Splicer: splice.New(),
					Dial: func(context.Context, string, string) (net.Conn, error) {
						<-release
						return nil, errors.New("it is too late")
					}})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- u.Serve() }()
			synctest.Wait()
			begin := time.Now()
			_, err = s.dial(t.Context(), wire.Dial{Address: "10.0.0.1:1"})
			if took := time.Since(begin); took != want || !fault.Has(err, fault.CodeDialTimeout) {
				t.Errorf("%s: it ends after %v, not %v: %v", flag, took, want, err)
			}
			close(release)
			u.Close()
			<-ended
		})
	}
}

// TestSocketFlags: a socket that is there is replaced unless --delete-existing-uds-file is false, and no other file is.
func TestSocketFlags(t *testing.T) {
	for _, c := range []struct {
		there, flag string
		taken       bool
	}{
		{"nothing", "--delete-existing-uds-file=false", true},
		{"a socket", "--delete-existing-uds-file=false", false},
		{"a socket", "--delete-existing-uds-file", true},
		{"a socket", "--mode=grpc", true},
		{"a file", "--delete-existing-uds-file", false},
	} {
		path := filepath.Join(runtest.Dir(t), "s")
		switch c.there {
		case "a socket":
			old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			old.SetUnlinkOnClose(false)
			old.Close()
		case "a file":
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := &Server{checked: checked{Options: parse(t, nil, "--uds-name="+path, c.flag)}}
		ln, err := s.listenSocket(t.Context())
		if (err == nil) != c.taken || err != nil && !fault.Has(err, fault.CodeSocketPath) {
			t.Errorf("%s, %s: %v", c.there, c.flag, err)
		}
		if err == nil {
			ln.Close()
		} else if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s, %s: it is gone: %v", c.there, c.flag, err)
		}
	}
}

// TestServerID: a flag goes before PROXY_SERVER_ID, and a random one comes last.
func TestServerID(t *testing.T) {
	environment := map[string]string{"PROXY_SERVER_ID": "by-environment"}
	if got := parse(t, environment).ServerID; got != "by-environment" {
		t.Errorf("by the environment it is %q", got)
	}
	if got := parse(t, environment, "--server-id=by-flag").ServerID; got != "by-flag" {
		t.Errorf("by the flag it is %q", got)
	}
	if one, other := parse(t, nil).ServerID, parse(t, nil).ServerID; strings.Count(one, "-") != 4 || one == other {
		t.Errorf("by default it is %q, and %q", one, other)
	}
}

// TestTLSPolicy is what the flags of TLS take.
func TestTLSPolicy(t *testing.T) {
	type policy struct {
		least  uint16 // 0: the flag is refused
		suites []uint16
	}
	for flag, want := range map[string]policy{
		"--tls-min-version=":             {least: tls.VersionTLS12},
		"--tls-min-version=VersionTLS10": {least: tls.VersionTLS10},
		"--tls-min-version=VersionTLS11": {least: tls.VersionTLS11},
		"--tls-min-version=VersionTLS12": {least: tls.VersionTLS12},
		"--tls-min-version=VersionTLS13": {least: tls.VersionTLS13},
		"--tls-min-version=VersionTLS14": {},
		"--tls-min-version=1.3":          {},
		"--cipher-suites=":               {least: tls.VersionTLS12},
		"--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": {
			least: tls.VersionTLS12, suites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
				tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}},
		"--cipher-suites=TLS_RSA_WITH_RC4_128_SHA": {}, // insecure
		"--cipher-suites=TLS_NONE":                 {},
	} {
		edit, err := parse(t, nil, flag).policy()
		if err != nil || want.least == 0 {
			if want.least != 0 || !fault.Has(err, fault.CodeUsage) {
				t.Errorf("%s: %v", flag, err)
			}
			continue
		}
		var got tls.Config
		edit(&got)
		if got.MinVersion != want.least || !slices.Equal(got.CipherSuites, want.suites) {
			t.Errorf("%s: from %x with %x", flag, got.MinVersion, got.CipherSuites)
		}
	}
}

// TestAnswered is how metrics have a call at the API that has not been answered; TestLeaseCodes has the others.
func TestAnswered(t *testing.T) {
	for err, want := range map[error]string{nil: "200 ", fault.New(fault.CodeKubeAway, "it is away"): "0 kubernetes_unreachable"} {
		code, reason := answered(err)
		if got := code + " " + reason; got != want {
			t.Errorf("%v: %q, not %q", err, got, want)
		}
	}
}
