// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/agent"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/server"
	"github.com/tombolo-io/tombolo/test/kube/tools"
)

const bound = runtest.Patience

// program is the reference's.
func program(t testing.TB) string { return built(t, tools.Reference) }

// built is one of the programs in the modules below this package.
func built(t testing.TB, name string) string {
	t.Helper()
	repo, err := tools.Repo()
	if err != nil {
		t.Fatal(err)
	}
	path, err := tools.EnsureKonnectivity(t.Context(), repo, name, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// world has the certificates of a test.
type world struct {
	testing.TB
	dir string
	ca  *x509.Certificate
	key *ecdsa.PrivateKey

	gate    func(server.Behind) (server.Gate, error) // of our servers
	reviews time.Duration                            // of tokens, by our servers
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, dir: runtest.Dir(t)}
	w.newCA()
	return w
}

// newCA makes a CA, and certificates of it for everybody, in place of those that are there.
func (w *world) newCA() {
	w.key = w.newKey()
	w.ca = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, w.ca, w.ca, w.key.Public(), w.key)
	w.must(err)
	w.write("ca.crt", "CERTIFICATE", der)
	for _, name := range []string{"server", "cluster", "client", "agent", "other"} {
		w.issue(name)
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.must(err)
	return key
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, kind string, der []byte) {
	w.must(os.WriteFile(w.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// issue writes a certificate that is good for every loopback address that a test has.
func (w *world) issue(name string) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	w.must(err)
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost", "servers.test.svc"},
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	key := w.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, w.ca, key.Public(), w.key)
	w.must(err)
	w.write(name+".crt", "CERTIFICATE", der)
	bytes, err := x509.MarshalECPrivateKey(key)
	w.must(err)
	w.write(name+".key", "EC PRIVATE KEY", bytes)
}

var eventually = runtest.Eventually

// nextPort is below the ports that the kernel gives to others: it is free when a process starts, and starts again.
var nextPort atomic.Int64

// ports gives free ports of 127.0.0.1, to which certificates are issued.
func (w *world) ports(n int) []int {
	var out []int
	for len(out) < n {
		port := 20_000 + (int64(os.Getpid())*97+nextPort.Add(1))%12_000
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // somebody has it
		}
		ln.Close()
		out = append(out, int(port))
	}
	return out
}

// proxy is a server, ours or the reference's.
type proxy struct {
	w                                        *world
	socket                                   string
	serverPort, agentPort, healthPort, admin int
	mode                                     string
	log                                      *runtest.Transcript
	soft                                     context.CancelFunc
	ended                                    chan error
	process                                  *runtest.Process
	args                                     []string // of ours
}

// prepare gives a server its ports and its flags.
func (w *world) prepare(mode string, tcp bool, extra []string) (*proxy, []string) {
	p := &proxy{w: w, mode: mode}
	ports := w.ports(4)
	p.serverPort, p.agentPort, p.healthPort, p.admin = ports[0], ports[1], ports[2], ports[3]
	args := []string{"--mode=" + mode, fmt.Sprintf("--agent-port=%d", p.agentPort), fmt.Sprintf("--health-port=%d", p.healthPort),
		fmt.Sprintf("--admin-port=%d", p.admin), "--cluster-cert=" + w.file("cluster.crt"), "--cluster-key=" + w.file("cluster.key"),
		"--cluster-ca-cert=" + w.file("ca.crt"), "--agent-bind-address=127.0.0.1", "--health-bind-address=127.0.0.1"}
	if tcp {
		args = append(args, fmt.Sprintf("--server-port=%d", p.serverPort), "--server-bind-address=127.0.0.1",
			"--server-cert="+w.file("server.crt"), "--server-key="+w.file("server.key"), "--server-ca-cert="+w.file("ca.crt"))
	} else {
		dir, err := os.MkdirTemp("", "konn")
		w.must(err)
		w.Cleanup(func() { os.RemoveAll(dir) })
		p.socket = filepath.Join(dir, "s")
		args = append(args, "--uds-name="+p.socket, "--server-port=0")
	}
	return p, append(args, extra...)
}

// ours starts our server in this process.
func (w *world) ours(mode string, tcp bool, extra ...string) *proxy {
	w.Helper()
	p, args := w.prepare(mode, tcp, extra)
	p.args, p.log = args, &runtest.Transcript{}
	s := w.ourServer(args, p.log)
	soft, stop := context.WithCancel(context.Background())
	hard, kill := context.WithCancel(context.Background())
	p.soft, p.ended = stop, make(chan error, 1)
	go func() { p.ended <- s.Run(soft, hard) }()
	w.Cleanup(func() {
		kill()
		stop()
		if err := <-p.ended; err != nil {
			w.Errorf("the server ended: %v", err)
		}
		p.ended <- nil
		if w.Failed() {
			w.Logf("our server:\n%s", p.log.String())
		}
	})
	p.up()
	return p
}

// theirs starts the reference's server.
func (w *world) theirs(mode string, tcp bool, extra ...string) *proxy {
	w.Helper()
	return w.theirsOf(tools.Reference, mode, tcp, extra)
}

// theirOld starts that of an older version.
func (w *world) theirOld(mode string, tcp bool, extra ...string) *proxy {
	w.Helper()
	return w.theirsOf(tools.ReferenceOld, mode, tcp, extra)
}

func (w *world) theirsOf(version, mode string, tcp bool, extra []string) *proxy {
	w.Helper()
	p, args := w.prepare(mode, tcp, extra)
	p.process = runtest.Start(w, exec.Command(built(w, version), append([]string{"server"}, args...)...))
	p.up()
	return p
}

func (p *proxy) up() {
	p.w.Helper()
	eventually(p.w, "the server is up", func() bool {
		status, _ := get(p.healthPort, "/healthz")
		return status == http.StatusOK
	})
}

// get asks a port of this machine; the status is 0 without an answer.
func get(port int, path string) (status int, body string) {
	c := http.Client{Timeout: bound, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, ""
	}
	return res.StatusCode, string(b)
}

// agentFlags are those of an agent for servers behind a port.
func (w *world) agentFlags(port int, extra []string) (health, admin int, args []string) {
	ports := w.ports(2)
	return ports[0], ports[1], append([]string{"--proxy-server-host=127.0.0.1", fmt.Sprintf("--proxy-server-port=%d", port),
		fmt.Sprintf("--health-server-port=%d", ports[0]), fmt.Sprintf("--admin-server-port=%d", ports[1]),
		"--ca-cert=" + w.file("ca.crt"), "--agent-cert=" + w.file("agent.crt"), "--agent-key=" + w.file("agent.key"),
		"--sync-interval=50ms", "--sync-interval-cap=100ms"}, extra...)
}

// agentOf is an agent, ours or the reference's.
type agentOf struct {
	w       *world
	health  int
	admin   int
	process *runtest.Process // theirs
	args    []string         // of TestKilled
	soft    context.CancelFunc
	ended   chan error // ours
	log     *runtest.Transcript
}

// startAgent starts an agent for servers behind a port.
type startAgent = func(w *world, port int, extra ...string) *agentOf

func theirAgent(w *world, port int, extra ...string) *agentOf {
	w.Helper()
	return theirAgentOf(w, tools.Reference, port, extra)
}

// theirOldAgent is one of an older version.
func theirOldAgent(w *world, port int, extra ...string) *agentOf {
	w.Helper()
	return theirAgentOf(w, tools.ReferenceOld, port, extra)
}

func theirAgentOf(w *world, version string, port int, extra []string) *agentOf {
	w.Helper()
	health, admin, args := w.agentFlags(port, extra)
	return &agentOf{w: w, health: health, admin: admin,
		process: runtest.Start(w, exec.Command(built(w, version), append([]string{"agent"}, args...)...))}
}

func ourAgent(w *world, port int, extra ...string) *agentOf {
	w.Helper()
	health, admin, args := w.agentFlags(port, extra)
	var o agent.Options
	fl := pflag.NewFlagSet("konnectivity-agent", pflag.ContinueOnError)
	getenv := func(string) string { return "" }
	o.Flags(fl, getenv)
	w.must(fl.Parse(args))
	a := &agentOf{w: w, health: health, admin: admin, log: &runtest.Transcript{}, ended: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	running, err := agent.New(o, agent.Deps{Log: log, Reg: prometheus.NewRegistry(), Getenv: getenv, Drain: bound})
	w.must(err)
	soft, stop := context.WithCancel(context.Background())
	hard, kill := context.WithCancel(context.Background())
	a.soft = stop
	go func() { a.ended <- running.Run(soft, hard) }()
	w.Cleanup(func() {
		kill()
		stop()
		if err := <-a.ended; err != nil {
			w.Errorf("the agent ended: %v", err)
		}
		a.ended <- nil
		if w.Failed() {
			w.Logf("our agent:\n%s", a.log.String())
		}
	})
	return a
}

// ready waits until the agent says so.
func (a *agentOf) ready() {
	a.w.Helper()
	eventually(a.w, "the agent is ready", func() bool {
		status, _ := get(a.health, "/readyz")
		return status == http.StatusOK
	})
}

// ready waits until a server has an agent.
func (p *proxy) ready() {
	p.w.Helper()
	eventually(p.w, "the server has an agent", func() bool {
		status, _ := get(p.healthPort, "/readyz")
		return status == http.StatusOK
	})
}

// dial reaches an address through a server as kube-apiserver does.
func (p *proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	if p.mode == "grpc" {
		return p.dialGRPC(ctx, address)
	}
	var raw net.Conn
	var err error
	if p.socket != "" {
		raw, err = net.Dial("unix", p.socket)
	} else {
		raw, err = tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.serverPort), p.w.clientTLS("client"))
	}
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { raw.Close() })
	fmt.Fprintf(raw, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", address)
	from := bufio.NewReader(raw)
	res, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
	if err != nil {
		raw.Close()
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		raw.Close()
		return nil, fmt.Errorf("%s: %s", res.Status, body)
	}
	if n := from.Buffered(); n > 0 { // as kube-apiserver judges it
		raw.Close()
		return nil, fmt.Errorf("%d bytes came along with the answer", n)
	}
	return raw, nil
}

func (p *proxy) dialGRPC(ctx context.Context, address string) (net.Conn, error) {
	target, creds := "unix:"+p.socket, insecure.NewCredentials()
	if p.socket == "" {
		target, creds = fmt.Sprintf("127.0.0.1:%d", p.serverPort), credentials.NewTLS(p.w.clientTLS("client"))
	}
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), target,
		grpc.WithTransportCredentials(creds), grpc.WithUserAgent("kube-apiserver"))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}

func (w *world) clientTLS(name string) *tls.Config {
	pair, err := tls.LoadX509KeyPair(w.file(name+".crt"), w.file(name+".key"))
	w.must(err)
	pool := x509.NewCertPool()
	pool.AddCert(w.parsedCA())
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}
}

func (w *world) parsedCA() *x509.Certificate {
	text, err := os.ReadFile(w.file("ca.crt"))
	w.must(err)
	block, _ := pem.Decode(text)
	ca, err := x509.ParseCertificate(block.Bytes)
	w.must(err)
	return ca
}

// mustDial dials.
func (p *proxy) mustDial(address string) net.Conn {
	p.w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	conn, err := p.dial(ctx, address)
	p.w.Cleanup(cancel)
	p.w.must(err)
	p.w.Cleanup(func() { conn.Close() })
	return conn
}

// echoes sends n bytes to an echo and reads them back.
func echoes(t testing.TB, conn net.Conn, n int) {
	t.Helper()
	sent := make([]byte, n)
	rand.Read(sent)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if _, err := conn.Write(sent); err != nil {
			t.Errorf("write: %v", err)
		}
	})
	got := make([]byte, n)
	done := time.AfterFunc(bound, func() { conn.Close() })
	defer done.Stop()
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatalf("read: %v", err)
	}
	if !bytes.Equal(sent, got) {
		t.Fatalf("other bytes came back than %d that were sent", n)
	}
}

// metric is the value of a line of /metrics; "" if there is none.
func metric(port int, line string) string {
	_, body := get(port, "/metrics")
	for l := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(l, line+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
