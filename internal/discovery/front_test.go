// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

func TestSniff(t *testing.T) {
	for name, c := range map[string]struct {
		in    string
		first string
		http2 bool
		err   bool
	}{
		"HTTP/2":             {preface + "more", preface, true, false},
		"HTTP/1.1":           {"GET / HTTP/1.1\r\n", "", false, false},
		"almost HTTP/2":      {"PRI * HTTP/2.0\r\n\r\nSX\r\n", "", false, false},
		"POST":               {"POST /", "", false, false},
		"nothing":            {"", "", false, true},
		"the half of it":     {preface[:10], "", false, true},
		"TLS in clear text":  {"\x16\x03\x01", "", false, false},
		"one byte of a word": {"P", "", false, true},
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(c.in), "byte by byte": iotest.OneByteReader(strings.NewReader(c.in))} {
			first, http2, err := sniff(r.Read)
			if (err != nil) != c.err || http2 != c.http2 || err == nil && !strings.HasPrefix(c.in, string(first)) || c.first != "" && string(first) != c.first {
				t.Errorf("%s, %s: %q, %v, %v", name, how, first, http2, err)
			}
			rest, _ := io.ReadAll(r)
			if err == nil && string(first)+string(rest) != c.in {
				t.Errorf("%s, %s: %q is lost of %q", name, how, string(first)+string(rest), c.in)
			}
		}
	}
}

func TestOnePortInClearText(t *testing.T) {
	r := serve(t, nil)
	mustUpdate(t, r.older(), affiliateUpdate("a", "x"))
	status, body, head := get(t, r.connect("tcp", r.Listen()), "/")
	if status != 200 || !strings.Contains(body, "<td>1</td>") || strings.Contains(body, "<script") || !strings.Contains(head.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d %v\n%s", status, head, body)
	}
	if status, _, head := get(t, r.connect("tcp", r.Listen()), "/stats"); status != 404 || head.Get("Tombolo-Fault") != "not_found" {
		t.Errorf("%d %v", status, head)
	}
	// A preface that comes byte by byte.
	conn, err := grpc.NewClient(r.Listen(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return &slowly{Conn: r.connect("tcp", r.Listen())}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := sdr.NewClusterClient(conn).Hello(runtest.Within(t), &sdr.HelloRequest{ClusterId: "c"}); err != nil {
		t.Error(err)
	}
}

// slowly sends its first bytes one by one.
type slowly struct {
	net.Conn
	sent int
}

func (s *slowly) Write(b []byte) (n int, err error) {
	for n < len(b) && s.sent < len(preface) && err == nil {
		_, err = s.Conn.Write(b[n : n+1])
		n, s.sent = n+1, s.sent+1
	}
	if err != nil || n == len(b) {
		return n, err
	}
	m, err := s.Conn.Write(b[n:])
	return n + m, err
}

// pair writes a certificate of a CA into files.
func pair(t *testing.T, ca *trust.Authority, dir, name string) {
	t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleDiscovery, Name: name}, Key: key.Public(), Life: time.Hour, Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := trust.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{"tls.crt": trust.EncodeCertificate(leaf.Raw), "tls.key": text} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func authority(t *testing.T) *trust.Authority {
	t.Helper()
	ca, err := trust.NewAuthority("example.org", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// shown is the name in the certificate that a caller is shown.
func (r *rig) shown(cfg *tls.Config) (string, string) {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.Listen(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, conn.ConnectionState().NegotiatedProtocol
}

func TestOnePortWithTLS(t *testing.T) {
	ca, dir := authority(t), t.TempDir()
	pair(t, ca, dir, "first")
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
		c.TLS = v1alpha1.DiscoveryTLSConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	})
	cfg := &tls.Config{RootCAs: ca.Roots(), ServerName: "127.0.0.1"}
	for _, offered := range []struct {
		protos []string
		want   string
	}{{[]string{"h2", "http/1.1"}, "http/1.1"}, {[]string{"h2"}, "h2"}, {[]string{"http/1.1"}, "http/1.1"}, {nil, ""}} {
		with := cfg.Clone()
		with.NextProtos = offered.protos
		if name, got := r.shown(with); got != offered.want || name != "first" {
			t.Errorf("of %v it takes %q", offered.protos, got)
		}
	}
	c := sdr.NewClusterClient(r.dial(cfg))
	w := mustWatch(t, c)
	wantTold(t, w, "")
	over, err := tls.Dial("tcp", r.Listen(), cfg) // no ALPN: by the first bytes
	if err != nil {
		t.Fatal(err)
	}
	if status, _, _ := get(t, over, "/"); status != 200 {
		t.Errorf("the page answers %d", status)
	}
	// Half a handshake, junk, and clear text harm nobody else.
	half := r.connect("tcp", r.Listen())
	half.Write([]byte("\x16\x03\x01\x02\x00\x01"))
	junk := r.connect("tcp", r.Listen())
	junk.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	if _, err := io.ReadAll(junk); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Log("clear text is ended with", err)
	}

	// A new pair is shown to who comes now, and drops nobody.
	pair(t, ca, dir, "second")
	runtest.Eventually(t, "the new certificate is shown", func() bool {
		name, _ := r.shown(cfg)
		return name == "second"
	})
	mustUpdate(t, c, affiliateUpdate("a", "x"))
	wantTold(t, w, "a=x[]")
	// One that cannot be used leaves the last one. A reload looks at once.
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Reload(r.valid(r.raw))
	if name, _ := r.shown(cfg); name != "second" || !strings.Contains(r.log.String(), "the last good one stays") {
		t.Errorf("%q is shown; the log:\n%s", name, r.log)
	}
	if strings.Contains(r.log.String(), "no key") {
		t.Error("the log shows what is in the file of the key")
	}
}

func TestItsOwnCA(t *testing.T) {
	dir := t.TempDir()
	own := func(c *v1alpha1.DiscoveryConfig) { c.TLS, c.StateDir = v1alpha1.DiscoveryTLSConfig{}, dir }
	r := serve(t, own)
	data, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	if _, err := sdr.NewClusterClient(r.dial(&tls.Config{RootCAs: roots})).Hello(runtest.Within(t), &sdr.HelloRequest{ClusterId: "c"}); err != nil {
		t.Fatal(err)
	}
	ca, err := trust.ParseCertificates(data)
	if err != nil || r.Status().CAPin != trust.Pin(ca[0]) || !strings.Contains(r.log.String(), trust.Pin(ca[0])) {
		t.Errorf("the pin is %q; %v", r.Status().CAPin, err)
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if again := serve(t, own); again.Status().CAPin != r.Status().CAPin {
		t.Error("the next start has another CA")
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openCA(dir, time.Now()); !fault.Has(err, fault.CodeStateCorrupt) {
		t.Errorf("a damaged CA: %v", err)
	}
}

func TestBadCertificates(t *testing.T) {
	ca, dir := authority(t), t.TempDir()
	pair(t, ca, dir, "a")
	other := t.TempDir()
	pair(t, ca, other, "b")
	for name, files := range map[string][2]string{
		"no file":       {filepath.Join(dir, "none"), filepath.Join(dir, "tls.key")},
		"another's key": {filepath.Join(dir, "tls.crt"), filepath.Join(other, "tls.key")},
		"a key first":   {filepath.Join(dir, "tls.key"), filepath.Join(dir, "tls.crt")},
	} {
		if _, err := readPair(files[0], files[1]); !fault.Has(err, fault.CodeCertInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	two := 2
	r := serve(t, func(c *v1alpha1.DiscoveryConfig) { c.Limits.ConnectionsPerAddress = &two })
	kept := []net.Conn{r.connect("tcp", r.Listen()), r.connect("tcp", r.Listen())}
	runtest.Eventually(t, "both are in", func() bool { return r.connections.open.Load() == 2 })
	third := r.connect("tcp", r.Listen())
	if n, err := third.Read(make([]byte, 1)); err == nil || n != 0 {
		t.Errorf("a third connection is answered: %d, %v", n, err)
	}
	kept[0].Close()
	runtest.Eventually(t, "one is gone", func() bool { return r.connections.open.Load() == 1 })
	if status, _, _ := get(t, r.connect("tcp", r.Listen()), "/"); status != 200 {
		t.Errorf("the page answers %d", status)
	}
}

func TestUndecidedConnectionsMakeRoom(t *testing.T) {
	shed := 0
	s := newUndecided(2, func(net.Conn, error) { shed++ })
	var ends []net.Conn
	var known []func()
	for range 3 {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		ends, known = append(ends, a), append(known, s.add(a))
	}
	if _, err := ends[0].Read(make([]byte, 1)); shed != 1 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest reads %v; %d are shed", err, shed)
	}
	for _, fn := range known {
		fn()
	}
	if s.order.Len() != 0 {
		t.Errorf("%d are left", s.order.Len())
	}
}

// TestJunkFramesHarmNobody: a connection that is HTTP/2 by its preface alone, one
// that sends junk after it, and headers without an end.
func TestJunkFramesHarmNobody(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	w := mustWatch(t, c)
	wantTold(t, w, "")
	for _, text := range []string{preface, preface + strings.Repeat("junk", 1000), preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + strings.Repeat("\xff", 100)} {
		conn := r.connect("tcp", r.Listen())
		conn.Write([]byte(text))
	}
	conn := r.connect("tcp", r.Listen())
	conn.Write([]byte("GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", discoveryHeader)))
	io.Copy(io.Discard, conn)
	var raw []byte
	junk := r.dial(nil, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{newCodec()})))
	err := junk.Invoke(runtest.Within(t), sdr.Cluster_AffiliateUpdate_FullMethodName, rawMessage("\xff\xff\xff"), &raw)
	if err == nil {
		t.Error("a message of junk is taken")
	}
	wantCode(t, junk.Invoke(runtest.Within(t), "/x.Y/Z", rawMessage(""), &raw), codes.Unimplemented, "")
	mustUpdate(t, c, affiliateUpdate("a", "x"))
	wantTold(t, w, "a=x[]")
}

func rawMessage(s string) raw { return raw(s) }
