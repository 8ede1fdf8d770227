// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// content is every file below a folder with what is in it.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// snapshotOf is the beginning of a snapshot of a format.
func snapshotOf(format uint32) string {
	head := binary.BigEndian.AppendUint32([]byte("tombolo members\n"), format)
	return string(binary.BigEndian.AppendUint32(head, crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli))))
}

// TestBadStartsOfADiscoveryService: each is refused with its code, its exit status
// and a next step, leaves no file but its lock, and harms no other service.
func TestBadStartsOfADiscoveryService(t *testing.T) {
	live := startService(t, "settle: 1s\n")
	dir := runtest.Dir(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	junk, empty := write("junk.pem", "no PEM"), write("empty", "\n")
	cert, key := selfSigned(t, filepath.Join(dir, "own"))
	other, _ := selfSigned(t, filepath.Join(dir, "other"))
	nowhere := "https://" + runtest.Address(1)
	for i, c := range []struct {
		name  string
		yaml  string
		state map[string]string
		exit  int
		says  []string
	}{
		{"a snapshot of a newer version", "", map[string]string{"members": snapshotOf(2) + "what is to come"}, 1, []string{"state_newer", "format 2", "run the newer release"}},
		{"a snapshot of a newer version, before a torn one", "", map[string]string{"members": snapshotOf(1), "members.old": snapshotOf(9)}, 1, []string{"state_newer", "format 9"}},
		{"somebody else's file", "", map[string]string{"members": "#!/bin/sh\n"}, 1, []string{"store_foreign", "move the file away"}},
		{"a damaged CA", "", map[string]string{"ca.key": "junk", "ca.crt": "junk"}, 1, []string{"state_corrupt"}},
		{"no certificate", "tls: {certFile: /none, keyFile: /none}\n", nil, 4, []string{"certificate_invalid", "no such file"}},
		{"no PEM in it", fmt.Sprintf("tls: {certFile: %q, keyFile: %q}\n", junk, key), nil, 4, []string{"certificate_invalid"}},
		{"the key of another", fmt.Sprintf("tls: {certFile: %q, keyFile: %q}\n", other, key), nil, 4, []string{"certificate_invalid"}},
		{"a folder for a key", fmt.Sprintf("tls: {certFile: %q, keyFile: %q}\n", cert, dir), nil, 2, []string{"secret_invalid", "no regular file"}},
		{"half a pair", fmt.Sprintf("tls: {certFile: %q}\n", cert), nil, 2, []string{"config_invalid", ":3:6: tls", "belong together"}},
		{"bounds of nothing", "limits: {members: 0, endpoints: -1}\nsettle: -1s\n", nil, 2, []string{"config_invalid", ":3:19: limits.members", "limits.endpoints", ":4:9: settle"}},
		{"an etcd that is away", "tls: {none: true}\nstore: {etcd: {endpoints: [" + nowhere + "]}}\n", nil, 3, []string{"store_unavailable", "see that etcd runs at"}},
		{"an etcd without its CA", "tls: {none: true}\nstore: {etcd: {endpoints: [" + nowhere + "], caFile: /none}}\n", nil, 4, []string{"certificate_invalid", "store.etcd.caFile"}},
		{"no CA of etcd in the file", "tls: {none: true}\nstore: {etcd: {endpoints: [" + nowhere + "], caFile: " + junk + "}}\n", nil, 4, []string{"certificate_invalid", "holds no certificate"}},
		{"half a pair for etcd", "tls: {none: true}\nstore: {etcd: {endpoints: [" + nowhere + "], certFile: " + cert + "}}\n", nil, 2, []string{"config_invalid", "belong together"}},
		{"the key of another for etcd", "tls: {none: true}\nstore: {etcd: {endpoints: [" + nowhere + "], certFile: " + other + ", keyFile: " + key + "}}\n", nil, 4, []string{"certificate_invalid"}},
		{"a password in the clear", "tls: {none: true}\nstore: {etcd: {endpoints: ['http://127.0.0.1:1'], username: u, passwordFile: " + cert + "}}\n", nil, 2, []string{"config_invalid", "not encrypted"}},
		{"no password", "tls: {none: true}\nstore: {etcd: {endpoints: [" + nowhere + "], username: u, passwordFile: /none}}\n", nil, 2, []string{"config_invalid", "store.etcd.passwordFile"}},
		{"an empty password", "tls: {none: true}\nstore: {etcd: {endpoints: [" + nowhere + "], username: u, passwordFile: " + empty + "}}\n", nil, 2, []string{"config_invalid", "is empty"}},
		{"an etcd that is no URL", "tls: {none: true}\nstore: {etcd: {endpoints: ['10.0.0.1:2379']}}\n", nil, 2, []string{"config_invalid", "endpoints[0]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			state, run := filepath.Join(dir, fmt.Sprint("state", i)), filepath.Join(dir, fmt.Sprint("run", i))
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range c.state {
				if err := os.WriteFile(filepath.Join(state, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := content(t, state)
			file := write(fmt.Sprint(i, ".yaml"), "apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\n"+c.yaml)
			o := tombolo(t, "discovery", "--config", file, "--state-dir", state, "--run-dir", run,
				"--listen", runtest.Address(8446), "--admin-listen", runtest.Address(8447))
			wantRefusal(t, o, c.exit, c.says...)
			after := content(t, state)
			delete(after, "/members.lock")
			if fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the state was %q and is %q", before, after)
			}
			if _, err := os.Stat(filepath.Join(run, "discovery/discovery.sock")); err == nil {
				t.Error("a socket is left")
			}
		})
	}
	mustJoin(t, live.older(t), "after all of them")
}

// wantRefusal is wantExit, with a next step. Log lines may stand before the error.
func wantRefusal(t *testing.T, o outcomeOf, exit int, says ...string) {
	t.Helper()
	if i := strings.Index(o.err, "error: "); i >= 0 {
		o.err = o.err[i:]
	}
	wantExit(t, o, exit, says...)
	if !strings.Contains(o.err, "\nhint: ") && !strings.Contains(o.err, "config_invalid") { // there the place is the next step
		t.Errorf("there is no next step: %q", o.err)
	}
}

// served is a discovery service as a process of its own.
type served struct {
	*process
	listen, pin, dir string
}

func startService(t *testing.T, yaml string) *served {
	t.Helper()
	s := &served{listen: runtest.Address(8446), dir: runtest.Dir(t)}
	text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\ntls: {self: true, hosts: [%q]}\n", strings.TrimSuffix(s.listen, ":8446")) + yaml
	if err := os.WriteFile(filepath.Join(s.dir, "discovery.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.again(t)
	return s
}

// admin is the address of its probes.
func (s *served) admin() string { return strings.TrimSuffix(s.listen, "8446") + "8447" }

func (s *served) state() string { return filepath.Join(s.dir, "state") }

// again starts it with the state that it left.
func (s *served) again(t *testing.T) {
	t.Helper()
	s.process = startProcess(t, "discovery", "--config", filepath.Join(s.dir, "discovery.yaml"), "--state-dir", s.state(), "--run-dir", filepath.Join(s.dir, "run"),
		"--listen", s.listen, "--admin-listen", s.admin())
	s.Says(t, "discovery service is ready")
	s.pin = s.status(t).CAPin
}

func (s *served) status(t *testing.T) (st admin.DiscoveryStatus) {
	t.Helper()
	text := must(t, "discovery", "status", "--admin-socket", filepath.Join(s.dir, "run/discovery/discovery.sock"), "-o", "json")
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// older is a client of the protocol of Talos nodes.
func (s *served) older(t *testing.T) sdr.ClusterClient {
	t.Helper()
	conn, err := grpc.NewClient(s.listen, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return sdr.NewClusterClient(conn)
}

func update(member string, edit func(*sdr.AffiliateUpdateRequest)) *sdr.AffiliateUpdateRequest {
	r := &sdr.AffiliateUpdateRequest{ClusterId: "c", AffiliateId: member, AffiliateData: []byte("of " + member), Ttl: &sdr.Duration{Seconds: 600}}
	if edit != nil {
		edit(r)
	}
	return r
}

func mustJoin(t *testing.T, c sdr.ClusterClient, member string) {
	t.Helper()
	if _, err := c.AffiliateUpdate(runtest.Within(t), update(member, nil)); err != nil {
		t.Fatal(err)
	}
}

// TestBadCallsOfADiscoveryService, at the program: each is refused with its reason
// and a next step, and nothing of it is taken; a watcher is told of nobody else, and
// whoever is there stays.
func TestBadCallsOfADiscoveryService(t *testing.T) {
	s := startService(t, "settle: 1s\n")
	c := s.older(t)
	mustJoin(t, c, "honest")
	watch, err := c.Watch(runtest.Within(t), &sdr.WatchRequest{ClusterId: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || len(first.Affiliates) != 1 {
		t.Fatalf("%v, %v", first, err)
	}
	long := strings.Repeat("x", 257)
	lease := func(seconds int64) func(*sdr.AffiliateUpdateRequest) {
		return func(r *sdr.AffiliateUpdateRequest) { r.Ttl = &sdr.Duration{Seconds: seconds} }
	}
	for name, bad := range map[string]struct {
		edit func(*sdr.AffiliateUpdateRequest)
		code codes.Code
		says string
	}{
		"a cluster without an id":  {func(r *sdr.AffiliateUpdateRequest) { r.ClusterId = "" }, codes.InvalidArgument, "the cluster id has 0 bytes"},
		"an id of a cluster":       {func(r *sdr.AffiliateUpdateRequest) { r.ClusterId = long }, codes.InvalidArgument, "the cluster id has 257 bytes"},
		"a member without an id":   {func(r *sdr.AffiliateUpdateRequest) { r.AffiliateId = "" }, codes.InvalidArgument, "the affiliate id has 0 bytes"},
		"an id of a member":        {func(r *sdr.AffiliateUpdateRequest) { r.AffiliateId = long }, codes.InvalidArgument, "the affiliate id has 257 bytes"},
		"data":                     {func(r *sdr.AffiliateUpdateRequest) { r.AffiliateData = make([]byte, 2049) }, codes.InvalidArgument, "affiliate_data has 2049 bytes"},
		"an endpoint":              {func(r *sdr.AffiliateUpdateRequest) { r.AffiliateEndpoints = [][]byte{[]byte("e"), make([]byte, 33)} }, codes.InvalidArgument, "affiliate_endpoints[1] has 33 bytes"},
		"an endpoint of nothing":   {func(r *sdr.AffiliateUpdateRequest) { r.AffiliateEndpoints = [][]byte{{}} }, codes.InvalidArgument, "affiliate_endpoints[0] has 0 bytes"},
		"a message":                {func(r *sdr.AffiliateUpdateRequest) { r.AffiliateData = make([]byte, 1<<20) }, codes.ResourceExhausted, "larger than max"},
		"a lease of nothing":       {lease(0), codes.InvalidArgument, "ttl"},
		"a lease of ages":          {lease(1 << 40), codes.InvalidArgument, "ttl"},
		"a lease that wraps round": {lease(9223372037), codes.InvalidArgument, "ttl"},
		"a lease before now":       {lease(-1), codes.InvalidArgument, "ttl"},
		"a second above the most":  {lease(1801), codes.InvalidArgument, "ttl"},
		"no lease":                 {func(r *sdr.AffiliateUpdateRequest) { r.Ttl = nil }, codes.InvalidArgument, "ttl"},
	} {
		for _, member := range []string{"bad", "honest"} {
			_, err := c.AffiliateUpdate(runtest.Within(t), update(member, bad.edit))
			if st := status.Convert(err); st.Code() != bad.code || !strings.Contains(st.Message(), bad.says) ||
				bad.says != "larger than max" && !strings.Contains(st.Message(), "; ") { // that one is gRPC's own
				t.Errorf("%s: %v, want %v with %q and a next step", name, err, bad.code, bad.says)
			}
		}
	}
	mustJoin(t, c, "next")
	m, err := watch.Recv()
	if err != nil || len(m.Affiliates) != 1 || m.Affiliates[0].Id != "next" {
		t.Errorf("the watcher is told of %v, %v", m, err)
	}
	all, err := c.List(runtest.Within(t), &sdr.ListRequest{ClusterId: "c"})
	if err != nil || len(all.Affiliates) != 2 || string(all.Affiliates[0].Data) != "of honest" || len(all.Affiliates[0].Endpoints) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if st := s.status(t); st.Clusters != 1 || st.Members != 2 {
		t.Errorf("%d members in %d clusters", st.Members, st.Clusters)
	}
}

// TestWrongSecretsAndTwoOfOneName: who has another secret finds nobody and is found
// by nobody, in both protocols, and is told what it may be; of two of one name both
// are there, and the conflict is told. The others never notice.
func TestWrongSecretsAndTwoOfOneName(t *testing.T) {
	s := startService(t, "settle: 1s\n")
	secret, wrong := filepath.Join(s.dir, "secret"), filepath.Join(s.dir, "wrong")
	must(t, "discovery", "secret", "create", secret)
	must(t, "discovery", "secret", "create", wrong)
	node := func(file, name, protocol, secret string) string {
		config := filepath.Join(s.dir, file+"-"+protocol+".yaml")
		text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {id: meeting, secretFiles: [%q]}\nnode: {name: %s, stateDir: %q, runDir: %q}\n"+
			"announce: {role: worker}\nhealthListen: %q\nsources: {services: [{url: 'https://%s', protocol: %s, pin: %q}]}\n",
			secret, name, filepath.Join(s.dir, file+"-"+protocol), filepath.Join(s.dir, file+"-"+protocol, "run"), runtest.Address(8448), s.listen, protocol, s.pin)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return config
	}
	sees := func(config, what string) outcomeOf {
		t.Helper()
		var o outcomeOf
		runtest.Eventually(t, fmt.Sprintf("%s: %q", filepath.Base(config), what), func() bool {
			o = tombolo(t, "discovery", "members", "--config", config)
			return strings.Contains(o.out+o.err, what)
		})
		return o
	}
	for _, protocol := range []string{"native", "sidero"} {
		t.Run(protocol, func(t *testing.T) {
			var all []*process
			for _, config := range []string{node("a", "a", protocol, secret), node("b", "b", protocol, secret), node("stranger", "stranger", protocol, wrong)} {
				all = append(all, startProcess(t, "discovery", "announce", "--config", config))
			}
			if protocol == "native" { // in the older one an id is a member
				all = append(all, startProcess(t, "discovery", "announce", "--config", node("second", "b", protocol, secret)))
			}
			looker, astray := node("looker", "looker", protocol, secret), node("astray", "astray", protocol, wrong)
			sees(looker, "\na ")
			sees(looker, "\nb ")
			sees(astray, "\nstranger ")
			if protocol == "native" {
				sees(looker, "conflict: node b")
			} else {
				for _, config := range []string{looker, astray} {
					sees(config, "another secret")
				}
			}
			if o := sees(looker, "\na "); strings.Contains(o.out, "stranger") {
				t.Errorf("who has another secret is there:\n%s", o.out)
			}
			if o := sees(astray, "\nstranger "); strings.Contains(o.out, "\na ") || strings.Contains(o.out, "\nb ") {
				t.Errorf("who has another secret sees the others:\n%s", o.out)
			}
			for _, p := range all {
				p.Process.Signal(syscall.SIGTERM)
				if code := p.Exit(t); code != 0 {
					t.Errorf("exit %d\n%s", code, p.Err.String())
				}
			}
		})
	}
	for name, text := range map[string]string{"none": "", "short": "c2hvcnQ=\n", "no base64": strings.Repeat("!", 44)} {
		if err := os.WriteFile(wrong, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"announce", "members", "watch"} {
			o := tombolo(t, "discovery", verb, "--config", node("x", "x", "native", wrong))
			wantExit(t, o, 2, "secret_invalid", "\nhint: ")
			if text != "" && strings.Contains(o.err, strings.TrimSpace(text)) {
				t.Errorf("%s: the refusal shows the secret: %s", name, o.err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "x-native")); !os.IsNotExist(err) {
		t.Errorf("who is refused has made a state directory: %v", err)
	}
}

// selfSigned writes a pair of files.
func selfSigned(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = dir+".crt", dir+".key"
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: text}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
