// SPDX-License-Identifier: Apache-2.0

// Package etcd runs a real etcd for tests: one process on an address of
// loopback of its own, which can be killed, stopped for a while and begun again with what it
// knew. The tests of the discovery service's store in it are here too.
package etcd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/tools"
)

// Server is one etcd.
type Server struct {
	URL     string
	t       testing.TB
	program string
	dir     string
	args    []string
	cmd     *exec.Cmd
}

// Options are what a server may have beside.
type Options struct {
	CA, Cert, Key string // TLS, with certificates of clients wanted
	Address       string // with TLS: for which the certificate is
}

// Start builds etcd if there is none yet, and starts it. It ends with the test.
func Start(t testing.TB, o Options) *Server { return begin(t, o, 1)[0] }

// StartCluster starts an etcd of several members.
func StartCluster(t testing.TB, members int) []*Server { return begin(t, Options{}, members) }

func begin(t testing.TB, o Options, members int) []*Server {
	t.Helper()
	repo, err := tools.Repo()
	if err != nil {
		t.Fatal(err)
	}
	program, err := tools.EnsureEtcd(t.Context(), repo, func(text string) { fmt.Fprintln(os.Stderr, text) })
	if err != nil {
		t.Fatal(err)
	}
	var secure []string
	scheme := "http://"
	if o.Cert != "" {
		scheme = "https://"
		secure = []string{"--trusted-ca-file", o.CA, "--cert-file", o.Cert, "--key-file", o.Key, "--client-cert-auth"}
	}
	all, peers, urls := make([]*Server, members), make([]string, members), make([]string, members)
	for i := range all {
		urls[i] = "http://" + runtest.Address(2380)
		peers[i] = fmt.Sprintf("m%d=%s", i, urls[i])
	}
	for i := range all {
		s := &Server{URL: scheme + cmp.Or(o.Address, runtest.Address(2379)), t: t, program: program, dir: t.TempDir()}
		s.args = append(secure, "--data-dir", s.data(), "--name", fmt.Sprint("m", i), "--log-level", "error",
			"--listen-client-urls", s.URL, "--advertise-client-urls", s.URL,
			"--listen-peer-urls", urls[i], "--initial-advertise-peer-urls", urls[i], "--initial-cluster", strings.Join(peers, ","),
			"--heartbeat-interval", "20", "--election-timeout", "200", "--unsafe-no-fsync",
			"--bcrypt-cost", "4") // a password costs no time
		s.Again()
		t.Cleanup(s.Kill)
		all[i] = s
	}
	return all
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Again starts the server, which was killed, with what it knew.
func (s *Server) Again() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(s.program, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends the server as kill -9 does.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it may be gone
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Stop halts the server, Go lets it go on.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Go lets the server go on after Stop.
func (s *Server) Go() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Client is a client of its own, for a server without TLS, once it answers.
func (s *Server) Client() *clientv3.Client {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.URL}, Logger: zap.NewNop()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Get(ctx, "x"); err != nil {
		text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.t.Fatal(fmt.Errorf("etcd does not answer: %w\n%s", err, text))
	}
	return c
}
