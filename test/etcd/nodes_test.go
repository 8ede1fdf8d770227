// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// play runs the program in one of its roles.
func play(t *testing.T, bin string, args ...string) *runtest.Process {
	t.Helper()
	return runtest.Start(t, exec.Command(bin, args...))
}

// site is several discovery services with one etcd and one certificate, behind a
// balancer that asks nobody who is there.
type site struct {
	bin, dir string
	lease    string // of members; empty: the default
	etcd     *Server
	services []*runtest.Process
	starts   []func() *runtest.Process
	balancer string
}

func newSite(t *testing.T, services int) *site {
	t.Helper()
	s := &site{bin: runtest.Program(t), dir: runtest.Dir(t)}
	ours := newAuthority(t)
	ours.issue(t, "server", false)
	s.etcd = Start(t, Options{})
	s.etcd.Client()
	var backs []string
	for i := range services {
		at := runtest.Address(8446)
		backs = append(backs, at)
		base := filepath.Join(s.dir, fmt.Sprint("service", i))
		s.file(t, base+".yaml", "DiscoveryConfig", fmt.Sprintf(`stateDir: %[1]s/state
runDir: %[1]s/run
listen: %[2]q
admin: {listen: %[3]q}
tls: {certFile: %[4]q, keyFile: %[5]q}
store: {etcd: {endpoints: [%[6]q]}}
settle: 500ms
drainTimeout: 3s
`, base, at, strings.TrimSuffix(at, "8446")+"8447", ours.file("server"), ours.file("server-key"), s.etcd.URL))
		s.starts = append(s.starts, func() *runtest.Process {
			r := play(t, s.bin, "discovery", "--config", base+".yaml")
			runtest.Eventually(t, "a service is ready", func() bool { return strings.Contains(r.Err.String(), "discovery service is ready") })
			return r
		})
		s.services = append(s.services, s.starts[i]())
	}
	s.balancer = balance(t, backs)
	must(t, os.WriteFile(filepath.Join(s.dir, "ca.pem"), read(t, ours.file("ca")), 0o600))
	return s
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}

func (s *site) file(t *testing.T, path, kind, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte("apiVersion: tombolo.dev/v1alpha1\nkind: "+kind+"\n"+text), 0o600))
	return path
}

// node writes the configuration of one.
func (s *site) node(t *testing.T, name, protocol string) string {
	t.Helper()
	return s.file(t, filepath.Join(s.dir, name+".yaml"), "MeshConfig", fmt.Sprintf(`cluster: {id: meeting, secretFiles: [%[1]q]}
node: {name: %[2]s, stateDir: %[3]q, runDir: %[3]q}
announce: {role: worker, endpoints: ['192.0.2.7:51820'], lease: %[8]s}
healthListen: %[4]q
cache: false
sources: {services: [{url: 'https://%[5]s', protocol: %[6]s, caFile: %[7]q}]}
`, filepath.Join(s.dir, "secret"), name, filepath.Join(s.dir, name), runtest.Address(8448), s.balancer, protocol, filepath.Join(s.dir, "ca.pem"), cmp.Or(s.lease, "30m")))
}

// secret makes the cluster's.
func (s *site) secret(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(s.bin, "discovery", "secret", "create", filepath.Join(s.dir, "secret")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// balance is a balancer of connections that takes the services in turn, dead or not.
func balance(t *testing.T, backs []string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // for which the certificate is
	must(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	all := map[net.Conn]bool{}
	over := false
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		all[c] = true
		return !over
	}
	carry := func(in net.Conn, to string) {
		defer in.Close()
		out, err := net.Dial("tcp", to)
		if err != nil {
			return // the caller tries again
		}
		defer out.Close()
		if !keep(in) || !keep(out) {
			return
		}
		wg.Go(func() {
			_, _ = io.Copy(out, in) // either end ends both
			in.Close()
			out.Close()
		})
		_, _ = io.Copy(in, out)
	}
	wg.Go(func() {
		for i := 0; ; i++ {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { carry(in, backs[i%len(backs)]) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		over = true
		for c := range all {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

// TestNodesOfSeveralServices: our own nodes, in both protocols, behind a balancer.
// Services are killed with -9 and restarted in order, one after the other and again;
// nobody who watches ever hears that one of them is gone, and who joins meanwhile
// is heard of.
func TestNodesOfSeveralServices(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	s.secret(t)
	var nodes []*runtest.Process
	announce := func(name, protocol string) {
		nodes = append(nodes, play(t, s.bin, "discovery", "announce", "--config", s.node(t, name, protocol)))
	}
	protocols := []string{"native", "sidero"}
	watchers := map[string]*runtest.Process{}
	for _, p := range protocols {
		for i := range 3 {
			announce(fmt.Sprint(p, i), p)
		}
		watchers[p] = play(t, s.bin, "discovery", "watch", "--config", s.node(t, "watcher-"+p, p))
	}
	hears := func(name string) {
		t.Helper()
		for _, p := range protocols {
			if strings.HasPrefix(name, p) {
				// Services that end one after the other look like one that ends sessions at once: a node waits longer
				// each time.
				runtest.EventuallyWithin(t, limit.DiscoveryBackoff+runtest.Patience, name+" is heard of", func() bool {
					return strings.Contains(watchers[p].Out.String(), "joined "+name+" ")
				})
			}
		}
	}
	for _, p := range protocols {
		for i := range 3 {
			hears(fmt.Sprint(p, i))
		}
	}
	for i := range 2 * len(s.services) {
		at := i % len(s.services)
		sig, want := syscall.SIGKILL, -1
		if i%2 == 1 {
			sig, want = syscall.SIGTERM, 0
		}
		if code := s.services[at].End(t, sig); code != want {
			t.Errorf("%v: exit %d", sig, code)
		}
		name := fmt.Sprintf("%s-late%d", protocols[i%2], i)
		announce(name, protocols[i%2])
		hears(name) // with one of three services away
		s.services[at] = s.starts[at]()
	}
	for _, p := range protocols {
		looker := s.node(t, "looker-"+p, p)
		list, err := exec.Command(s.bin, "discovery", "members", "--wait", "1m", "--config", looker).Output()
		if err != nil || strings.Count(string(list), "192.0.2.7:51820") != 6 {
			t.Errorf("%s: %v\n%s", p, err, list)
		}
		if text := watchers[p].Out.String(); strings.Contains(text, "left ") || strings.Count(text, "joined ") != 6 {
			t.Errorf("%s: the watcher was told\n%s", p, text)
		}
	}
	for _, r := range append(nodes, watchers["native"], watchers["sidero"]) {
		if code := r.End(t, syscall.SIGTERM); code != 0 {
			t.Errorf("exit %d of %v: %s", code, r.Args, r.Err.String())
		}
	}
	s.page(t)
}

// page: the balancer carries the landing page too, with the one certificate.
func (s *site) page(t *testing.T) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, filepath.Join(s.dir, "ca.pem")))
	client := &http.Client{Timeout: runtest.Patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	for range len(s.services) {
		res, err := client.Get("https://" + s.balancer + "/")
		must(t, err)
		text, err := io.ReadAll(res.Body)
		must(t, err)
		res.Body.Close()
		if !strings.Contains(string(text), "Members</th><td>12</td>") {
			t.Errorf("a service shows\n%s", text)
		}
	}
}
