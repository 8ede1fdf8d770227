// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// strictly decodes JSON and fails on a field that the schema does not have.
func strictly(t *testing.T, text string, into any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

func TestTokenVerbs(t *testing.T) {
	w := startHub(t)
	text := must(t, "token", "create", "--cluster", "c1")
	line := regexp.MustCompile(`^tombolo agent --join (tombolo://[a-z2-7]{8}\.[a-z2-7]{32}@[^ /]+/c1/[A-Za-z0-9_-]{43})\n$`)
	if m := line.FindStringSubmatch(text); m == nil || !strings.Contains(m[1], "@"+w.listen+"/") {
		t.Errorf("stdout is not the one line: %q", text)
	}
	if o := tombolo(t, "token", "create", "--cluster", "c1"); !strings.Contains(o.err, "--allow") || !strings.Contains(o.err, "15m0s") {
		t.Errorf("stderr says not what to do: %q", o.err)
	}
	var tok admin.Token
	strictly(t, must(t, "token", "create", "--cluster", "c2", "--uses", "3", "--ttl", "1h", "-o", "json"), &tok)
	if tok.APIVersion != "tombolo.dev/v1alpha1" || tok.Kind != "Token" || tok.Cluster != "c2" || tok.Uses != 3 ||
		tok.Command != "tombolo agent --join "+tok.Join || !strings.HasPrefix(tok.Join, "tombolo://"+tok.ID+".") {
		t.Errorf("json: %+v", tok)
	}
	if left := time.Until(tok.Expires); left > time.Hour || left < 50*time.Minute {
		t.Errorf("it lives %v", left)
	}
	var asYAML map[string]any
	if err := yaml.Unmarshal([]byte(must(t, "token", "create", "--cluster", "c2", "-o", "yaml")), &asYAML); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"apiVersion", "kind", "id", "cluster", "expires", "uses", "join", "command"} {
		if asYAML[field] == nil {
			t.Errorf("yaml has no %s: %v", field, asYAML)
		}
	}
	var list admin.TokenList
	strictly(t, must(t, "token", "list", "-o", "json"), &list)
	if len(list.Tokens) != 4 || list.Kind != "TokenList" {
		t.Errorf("list: %+v", list)
	}
	if out := must(t, "token", "list"); !strings.Contains(out, tok.ID) || !strings.Contains(out, "0/3") || strings.Contains(out, "tombolo://") {
		t.Errorf("list: %q", out)
	}
	must(t, "token", "revoke", tok.ID)
	wantExit(t, tombolo(t, "token", "revoke", tok.ID), 1, "not_found", "tombolo token list")
	wantExit(t, tombolo(t, "token", "create", "--cluster", "Not_Valid"), 2, "request_malformed")
	wantExit(t, tombolo(t, "token", "create", "--cluster", "c1", "--ttl", "0s"), 2)
	wantExit(t, tombolo(t, "token", "create", "--cluster", "c1", "--uses", "0"), 2)
	// A wrong format is noticed before a token is made.
	wantExit(t, tombolo(t, "token", "create", "--cluster", "c1", "-o", "xml"), 2, "xml")
	strictly(t, must(t, "token", "list", "-o", "json"), &list)
	if len(list.Tokens) != 3 {
		t.Errorf("%d tokens after refused commands", len(list.Tokens))
	}
}

func TestStatusAndPing(t *testing.T) {
	w := startWorld(t)
	var st admin.Status
	strictly(t, must(t, "status", "-o", "json"), &st)
	if st.Kind != "Status" || len(st.Clusters) != 1 || len(st.Clusters[0].Agents) != 1 || !st.Clusters[0].Agents[0].Connected {
		t.Fatalf("json: %+v", st)
	}
	agent := st.Clusters[0].Agents[0].ID
	text := must(t, "status")
	for _, say := range []string{"running", w.listen, "c1", agent, "connected", "CONNECTIONS", "LAST DISCONNECT"} {
		if !strings.Contains(text, say) {
			t.Errorf("status does not say %q:\n%s", say, text)
		}
	}
	if one := must(t, "status", "c1"); !strings.Contains(one, "127.0.0.0/8") || !strings.Contains(one, ", 1 connection\n") {
		t.Errorf("status of one:\n%s", one)
	}
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(must(t, "status", "c1", "-o", "yaml")), &tree); err != nil || tree["kind"] != "Status" {
		t.Errorf("yaml: %v, %v", tree, err)
	}
	wantExit(t, tombolo(t, "status", "nope"), 1, "cluster_unknown", "tombolo token create --cluster nope")

	if out := must(t, "ping", "c1", "-c", "1"); !regexp.MustCompile(`^` + agent + `: \d+\.\d\d ms\n$`).MatchString(out) {
		t.Errorf("ping: %q", out)
	}
	var ping admin.PingResult
	strictly(t, must(t, "ping", "c1", "-c", "1", "-o", "json"), &ping)
	if ping.Kind != "PingResult" || ping.Cluster != "c1" || len(ping.Agents) != 1 || ping.Agents[0].RTTMillis <= 0 {
		t.Errorf("json: %+v", ping)
	}
	must(t, "token", "create", "--cluster", "empty")
	wantExit(t, tombolo(t, "ping", "empty", "-c", "1"), 3, "no_agent", "tombolo token create --cluster empty")
	wantExit(t, tombolo(t, "ping", "nope", "-c", "1"), 1, "cluster_unknown")
}

// egress is the configuration as kube-apiserver reads it: strictly.
type egress struct {
	APIVersion       string `yaml:"apiVersion"`
	Kind             string `yaml:"kind"`
	EgressSelections []struct {
		Name       string `yaml:"name"`
		Connection struct {
			ProxyProtocol string `yaml:"proxyProtocol"`
			Transport     struct {
				TCP *struct {
					URL       string `yaml:"url"`
					TLSConfig struct {
						CABundle   string `yaml:"caBundle"`
						ClientKey  string `yaml:"clientKey"`
						ClientCert string `yaml:"clientCert"`
					} `yaml:"tlsConfig"`
				} `yaml:"tcp"`
				UDS *struct {
					UDSName string `yaml:"udsName"`
				} `yaml:"uds"`
			} `yaml:"transport"`
		} `yaml:"connection"`
	} `yaml:"egressSelections"`
}

func parseEgress(t *testing.T, text string) egress {
	t.Helper()
	var out egress
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&out); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if out.APIVersion != "apiserver.k8s.io/v1beta1" || out.Kind != "EgressSelectorConfiguration" || len(out.EgressSelections) != 1 || out.EgressSelections[0].Name != "cluster" {
		t.Fatalf("head: %+v", out)
	}
	return out
}

func TestEgressConfig(t *testing.T) {
	w := startHub(t)
	must(t, "token", "create", "--cluster", "c1")
	for mode, want := range map[string][2]string{"grpc-uds": {"GRPC", "konnectivity.sock"}, "connect-uds": {"HTTPConnect", "connect.sock"}} {
		c := parseEgress(t, must(t, "egress-config", "c1", "--mode", mode)).EgressSelections[0].Connection
		path := filepath.Join(w.dir, "run/clusters/c1", want[1])
		if c.ProxyProtocol != want[0] || c.Transport.TCP != nil || c.Transport.UDS == nil || c.Transport.UDS.UDSName != path {
			t.Errorf("%s: %+v", mode, c)
		}
		if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
			t.Errorf("%s: the socket is not there: %v", mode, err)
		}
		if again := must(t, "egress-config", "c1", "--mode", mode); !strings.Contains(again, path) {
			t.Errorf("%s: a second time: %q", mode, again)
		}
	}
	dir := filepath.Join(w.dir, "made", "tls")
	c := parseEgress(t, must(t, "egress-config", "c1", "--mode", "connect-tls", "--out-dir", dir)).EgressSelections[0].Connection
	if c.ProxyProtocol != "HTTPConnect" || c.Transport.UDS != nil || c.Transport.TCP.URL != "https://"+w.listen {
		t.Errorf("connect-tls: %+v", c)
	}
	for path, mode := range map[string]os.FileMode{c.Transport.TCP.TLSConfig.ClientKey: 0o600, c.Transport.TCP.TLSConfig.ClientCert: 0o644, c.Transport.TCP.TLSConfig.CABundle: 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode || filepath.Dir(path) != dir {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	key, err := os.ReadFile(filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, "egress-config", "c1", "--mode", "connect-tls", "--out-dir", dir), 2, "exists already", "--out-dir")
	wantExit(t, tombolo(t, "egress-config", "c1", "--mode", "connect-tls", "--out-dir", dir+"2", "--hub-address", "nowhere"), 2, "--hub-address")
	if after, err := os.ReadFile(filepath.Join(dir, "client.key")); err != nil || !bytes.Equal(key, after) {
		t.Errorf("the key was touched: %v", err)
	}
	var list admin.CertificateList
	strictly(t, must(t, "certificate", "list", "-o", "json"), &list)
	if len(list.Certificates) != 1 {
		t.Errorf("refused commands issued certificates: %+v", list.Certificates)
	}
	other := must(t, "egress-config", "c1", "--mode", "connect-tls", "--out-dir", dir+"3", "--hub-address", "hub.example.com:443")
	if c := parseEgress(t, other).EgressSelections[0].Connection; c.Transport.TCP.URL != "https://hub.example.com:443" {
		t.Errorf("--hub-address: %+v", c.Transport.TCP)
	}
	for _, mode := range []string{"grpc-uds", "connect-uds", "connect-tls"} {
		wantExit(t, tombolo(t, "egress-config", "nope", "--mode", mode, "--out-dir", dir+"4"), 1, "cluster_unknown")
	}
}

func TestCertificateVerbs(t *testing.T) {
	w := startWorld(t)
	file := filepath.Join(w.dir, "alice.pem")
	must(t, "certificate", "issue", "--role", "operator", "--name", "alice", "--out", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	wantExit(t, tombolo(t, "certificate", "issue", "--role", "operator", "--name", "alice", "--out", file), 2, "exists already")
	wantExit(t, tombolo(t, "certificate", "issue", "--role", "client", "--cluster", "nope", "--name", "x", "--out", file+"2"), 1, "cluster_unknown")
	remote := []string{"--hub", w.listen, "--operator", file}
	if out := must(t, append([]string{"status"}, remote...)...); !strings.Contains(out, "connected") {
		t.Errorf("remotely: %q", out)
	}
	var list admin.CertificateList
	strictly(t, must(t, "certificate", "list", "-o", "json"), &list)
	if len(list.Certificates) != 2 || !strings.HasSuffix(list.Certificates[0].Identity, "/operator/alice") {
		t.Fatalf("list: %+v", list)
	}
	serial := list.Certificates[0].Serial
	if out := must(t, "certificate", "list"); !strings.Contains(out, serial) || !strings.Contains(out, "valid") {
		t.Errorf("list: %q", out)
	}
	must(t, "revoke", "operator", serial)
	if out := must(t, "certificate", "list"); !strings.Contains(out, "revoked") {
		t.Errorf("list: %q", out)
	}
	wantExit(t, tombolo(t, append([]string{"status"}, remote...)...), 4, "certificate_revoked")
	wantExit(t, tombolo(t, "revoke", "operator", "nope"), 1, "not_found")
	// A client is no operator.
	client := filepath.Join(w.dir, "client.pem")
	must(t, "certificate", "issue", "--role", "client", "--cluster", "c1", "--name", "kas", "--out", client)
	if o := tombolo(t, "status", "--hub", w.listen, "--operator", client); o.code == 0 {
		t.Errorf("a client may ask for the status: %s", o.out)
	}
	// Another hub is not believed.
	if err := os.WriteFile(file, bytes.Replace(readFile(t, file), []byte("BEGIN CERTIFICATE"), []byte("BEGIN NONSENSE"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, append([]string{"status"}, remote...)...), 4, "certificate_invalid")
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestConnectOverStdio(t *testing.T) {
	startWorld(t)
	late := target(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		c.Write(append([]byte("got "), all...))
	})
	if o := tomboloIn(t, "question", "connect", "c1", late); o.code != 0 || o.out != "got question" {
		t.Errorf("half-close: %+v", o)
	}
	wantExit(t, tombolo(t, "connect", "c1", "169.254.169.254:80"), 4, "policy_denied", "--allow")
	wantExit(t, tombolo(t, "connect", "c1", runtest.Address(9)), 1, "dial_refused")
	wantExit(t, tombolo(t, "connect", "c1", "no-port"), 2, "request_malformed")
	wantExit(t, tombolo(t, "connect", "nope", "10.0.0.1:80"), 1, "cluster_unknown")

	// The target finishes first: what stdin still has arrives all the same.
	var heard atomic.Int64
	early := target(t, func(c *net.TCPConn) {
		c.CloseWrite()
		for buf := make([]byte, 32<<10); ; {
			n, err := c.Read(buf)
			heard.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	p := startProcess(t, "connect", "c1", early)
	runtest.Eventually(t, "stdout has ended or the stream is open", func() bool { return strings.Contains(must(t, "status", "-o", "json"), `"streams": 1`) })
	chunk := bytes.Repeat([]byte("x"), 100_000)
	for i := range 5 {
		if _, err := p.Input.Write(chunk); err != nil {
			t.Fatalf("connect gave up on stdin: %v", err)
		}
		runtest.Eventually(t, "it arrives", func() bool { return heard.Load() == int64(i+1)*int64(len(chunk)) })
	}
	p.Input.Close()
	if code := p.Exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A stdin that says nothing keeps connect neither from an end by signal nor from
// noticing that the connection broke.
func TestConnectEndsThoughStdinIsOpen(t *testing.T) {
	w := startWorld(t)
	open := func() *process {
		p := startProcess(t, "connect", "c1", echo(t))
		io.WriteString(p.Input, "hello")
		runtest.Eventually(t, "the echo", func() bool { return p.Out.String() == "hello" })
		return p
	}
	p := open()
	p.Process.Signal(os.Interrupt)
	if code := p.Exit(t); code != 0 {
		t.Errorf("SIGINT: exit %d", code)
	}
	broken := startProcess(t, "connect", "c1", target(t, func(c *net.TCPConn) {
		c.Read(make([]byte, 1))
		c.SetLinger(0)
	}))
	io.WriteString(broken.Input, "x")
	if code := broken.Exit(t); code == 0 {
		t.Error("a reset by the target looks like an end in order")
	}
	p = open()
	w.agent.Process.Kill()
	if code := p.Exit(t); code == 0 {
		t.Error("the loss of the agent looks like an end in order")
	}
}

func TestConnectListens(t *testing.T) {
	startWorld(t)
	to := echo(t)
	p := startProcess(t, "connect", "c1", to, "--listen", "127.0.0.1:0")
	p.Says(t, "listening on ")
	address := regexp.MustCompile(`listening on (\S+) for`).FindStringSubmatch(p.Err.String())[1]
	for _, text := range []string{"one", "two"} {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		io.WriteString(conn, text)
		conn.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(conn); string(got) != text || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		conn.Close()
	}
	wantExit(t, tombolo(t, "connect", "c1", to, "--listen", address), 1, "address_in_use", "--listen")
	p.Process.Signal(os.Interrupt)
	if code := p.Exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	refused := startProcess(t, "connect", "c1", "169.254.169.254:80", "--listen", "127.0.0.1:0")
	refused.Says(t, "listening on ")
	address = regexp.MustCompile(`listening on (\S+) for`).FindStringSubmatch(refused.Err.String())[1]
	if conn, err := net.Dial("tcp", address); err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a refused dial is an open connection")
		}
	} else if !errors.Is(err, syscall.ECONNRESET) { // the refusal may overtake the end of our dial
		t.Fatal(err)
	}
	refused.Says(t, "policy_denied")
}
