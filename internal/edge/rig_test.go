// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/edge"
)

// front is a running edge with a TLS port and a CONNECT port on loopback.
type front struct {
	*edge.Edge
	t            *testing.T
	tls, connect string            // the first port and the last
	ports        map[string]string // all, by name
	policy       string            // its file
	records      string
	tenants      string // their folder
	runDir       string
	stop         func() // and waits
	hard         context.CancelFunc
}

// start runs an edge; the policy may be empty. more is added to the configuration.
func start(t *testing.T, policy, more string) *front {
	t.Helper()
	dir := t.TempDir()
	f := &front{t: t, policy: filepath.Join(dir, "policy.yaml"), records: filepath.Join(dir, "audit.jsonl")}
	f.tenants = filepath.Join(dir, "tenants")
	if err := os.Mkdir(f.tenants, 0o700); err != nil {
		t.Fatal(err)
	}
	f.runDir = runtest.Dir(t)
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeConfig\nhealthListen: 127.0.0.1:0\nrunDir: " + f.runDir + "\ntenants: [" + f.tenants + "]\n" +
		"audit: {path: " + f.records + "}\ndrainTimeout: 2s\n"
	if policy != "" {
		f.write(policy)
		text += "policies: [" + f.policy + "]\n"
	}
	if !strings.Contains(more, "listeners:") {
		more += "\nlisteners:\n- {name: tls, listen: '127.0.0.1:0', protocol: tls}\n" +
			"- {name: vpn, listen: '127.0.0.1:0', protocol: connect}\n"
	}
	cfg, err := edge.ParseConfig("edge.yaml", []byte(text+more))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	reg := prometheus.NewRegistry()
	records, err := audit.New(cfg.Audit, audit.Options{Log: log, Reg: reg})
	if err != nil {
		t.Fatal(err)
	}
	f.Edge = edge.New(cfg, edge.Options{Log: log, Reg: reg, Audit: records})
	soft, cancel := context.WithCancel(t.Context())
	hard, cut := context.WithCancel(context.WithoutCancel(soft))
	f.hard = cut
	done := make(chan error, 1)
	go func() {
		done <- records.While(hard, func() error { return f.Run(soft, hard) })
	}()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cut(); f.stop() })
	ports := f.Ports()
	f.ports = map[string]string{}
	for i, ln := range ports {
		f.ports[cfg.Listeners[i].Name] = ln.Addr().String()
	}
	f.tls, f.connect = ports[0].Addr().String(), ports[len(ports)-1].Addr().String()
	return f
}

func (f *front) write(policy string) {
	f.t.Helper()
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n" + policy
	if err := os.WriteFile(f.policy+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.policy+".new", f.policy); err != nil {
		f.t.Fatal(err)
	}
}

// tenant puts one into force, whose ways are in YAML.
func (f *front) tenant(name, ways string) {
	f.t.Helper()
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: " + name + "}\nspec:\n  ways:\n" + ways
	if err := store.Write(filepath.Join(f.tenants, name+".yaml"), []byte(text)); err != nil {
		f.t.Fatal(err)
	}
	runtest.Eventually(f.t, "the tenant is in force", func() bool {
		c := f.Tenants().Get(name)
		return c != nil && len(c.Ways) == strings.Count(ways, "- {")
	})
}

// remove takes a tenant away.
func (f *front) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.tenants, name+".yaml")); err != nil {
		f.t.Fatal(err)
	}
	runtest.Eventually(f.t, "the tenant is gone", func() bool { return f.Tenants().Get(name) == nil })
}

// audited ends the edge and reads its records.
func (f *front) audited() (out []audit.Record) {
	f.t.Helper()
	f.stop()
	data, err := os.ReadFile(f.records)
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var r audit.Record
		if err := json.Unmarshal(line, &r); err != nil {
			f.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// echo is a TCP upstream that repeats what it gets; first is told what came with the first read.
func echo(t *testing.T, first func(string)) string {
	t.Helper()
	return upstream(t, func(c net.Conn) {
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if first != nil {
			first(string(b[:n]))
		}
		for err == nil {
			if _, err = c.Write(b[:n]); err == nil {
				n, err = c.Read(b)
			}
		}
	})
}

func upstream(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return ln.Addr().String()
}

// secure is a TLS upstream that repeats what it gets.
func secure(t *testing.T) string {
	t.Helper()
	cfg := &tls.Config{Certificates: []tls.Certificate{runtest.Certificate(t)}}
	return upstream(t, func(c net.Conn) {
		s := tls.Server(c, cfg)
		io.Copy(s, s)
		s.CloseWrite()
	})
}

// dial is a TCP connection whose first use is bounded.
func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	renew(c)
	return c.(*net.TCPConn)
}

// renew bounds the next use of a connection, whenever it was made.
func renew(c net.Conn) { c.SetDeadline(time.Now().Add(runtest.Patience)) }

// ping sends msg and wants it back.
func ping(t *testing.T, c net.Conn, msg string) {
	t.Helper()
	renew(c)
	if _, err := io.WriteString(c, msg); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != msg {
		t.Fatalf("%q, %v; want %q", got, err, msg)
	}
}
