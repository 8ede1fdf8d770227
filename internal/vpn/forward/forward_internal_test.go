// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const good = `apiVersion: tombolo.dev/v1alpha1
kind: VPNForwardConfig
listen: 192.168.128.1:1194
clusters:
- {name: c1, address: 192.168.128.17, target: "vpn.c1.svc:1194"}
- {name: c2, address: 192.168.128.18, target: "10.0.0.2:1194"}
`

func TestConfig(t *testing.T) {
	for name, test := range map[string]struct{ replace, with, want string }{
		"nothing wrong":   {"", "", ""},
		"no clusters yet": {good[strings.Index(good, "clusters:"):], "", ""},
		"udp":             {"clusters:", "protocol: udp\nclusters:", ""},
		"everywhere":      {"192.168.128.1:1194", "0.0.0.0:1194", "listen: "},
		"a name":          {"192.168.128.1:1194", "e1:1194", "listen: "},
		"a protocol":      {"clusters:", "protocol: sctp\nclusters:", "protocol: \"sctp\" is neither"},
		"one twice":       {"name: c2", "name: c1", "clusters[1].name: c1 is that of clusters[0] too"},
		"an address":      {".18,", ".17,", "clusters[1].address: 192.168.128.17 is that of c1 too"},
		"its own":         {"192.168.128.18", "192.168.128.1", "clusters[1].address: 192.168.128.1 is this machine's own"},
		"another family":  {"192.168.128.18", "'fd00::18'", "clusters[1].address: fd00::18 is of the other family"},
		"no address":      {"192.168.128.18", "127.0.0.1", "clusters[1].address: "},
		"no port":         {"10.0.0.2:1194", "10.0.0.2", "clusters[1].target: "},
		"no name":         {"name: c2", "name: C_2", "clusters[1].name: "},
		"a kind":          {"VPNForwardConfig", "VPNServerConfig", "kind"},
	} {
		c, err := ParseConfig("x.yaml", []byte(strings.Replace(good, test.replace, test.with, 1)))
		switch {
		case test.want == "" && (err != nil || !c.Listen.IsValid()):
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// late is a context whose deadline has passed, and which does not know it yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// TestADialThatIsLate: package net may see its end before its context does.
func TestADialThatIsLate(t *testing.T) {
	f := Forwarder{dial: func(context.Context, string, string) (net.Conn, error) { return nil, os.ErrDeadlineExceeded }}
	p := place{served: &served{Cluster: Cluster{Name: "c1", Target: "a:1"}}, ctx: late{t.Context()}}
	if _, why := f.reach(p); why == nil || why.Code != fault.CodeDialTimeout {
		t.Error(why)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(good)
	f.Fuzz(func(t *testing.T, text string) { _, _ = ParseConfig("x", []byte(text)) })
}

func TestTable(t *testing.T) {
	one, two, three := netip.MustParseAddr("192.168.128.17"), netip.MustParseAddr("192.168.128.18"), netip.MustParseAddr("192.168.128.19")
	c1, c2 := Cluster{"c1", "a:1"}, Cluster{"c2", "b:1"}
	b := table{most: 3, each: 2}
	b.set(t.Context(), map[netip.Addr]Cluster{one: c1, two: c2})
	refused := func(from netip.Addr, code fault.Code) {
		t.Helper()
		if _, f := b.admit(from); f == nil || f.Code != code {
			t.Errorf("%s: %v, want %s", from, f, code)
		}
	}
	admitted := func(from netip.Addr) place {
		t.Helper()
		p, f := b.admit(from)
		if f != nil {
			t.Fatal(f)
		}
		return p
	}
	refused(three, fault.CodeClusterUnknown)
	first, second := admitted(one), admitted(netip.AddrFrom16(one.As16()))
	refused(one, fault.CodeLimit)
	third := admitted(two)
	refused(two, fault.CodeLimit) // of all
	second.back()
	second.back()
	if n := b.opened(); n != 2 {
		t.Errorf("%d are open, want 2", n)
	}
	admitted(one).back()
	b.set(t.Context(), map[netip.Addr]Cluster{one: c1, two: {"c2", "other:1"}, three: {"c3", "c:1"}})
	if first.ctx.Err() != nil || third.ctx.Err() == nil {
		t.Errorf("of the same cluster: %v; with another target: %v", first.ctx.Err(), third.ctx.Err())
	}
	b.set(t.Context(), nil)
	if first.ctx.Err() == nil {
		t.Error("a connection of a cluster that has left goes on")
	}
	refused(one, fault.CodeClusterUnknown)
	first.back()
	third.back()
	if n := b.opened(); n != 0 {
		t.Errorf("%d are open", n)
	}
}

// forwarder runs one at an address of this machine; sources are clusters by addresses of it too.
func forwarder(t *testing.T, protocol string, all map[string]string) (f *Forwarder, at string) {
	t.Helper()
	at = runtest.Address(1194)
	f = New(Config{Listen: netip.MustParseAddrPort(at), Protocol: protocol, HealthListen: "127.0.0.1:0", Clusters: served127(all)},
		Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
	g := run.NewGroup(t.Context())
	g.Go("forwarder", func(ctx context.Context) error { return f.Run(ctx, ctx) })
	t.Cleanup(func() {
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	until(t, "it listens", func() bool { return f.unready() == nil })
	return f, at
}

func served127(all map[string]string) map[netip.Addr]Cluster {
	out := map[netip.Addr]Cluster{}
	for from, target := range all {
		out[netip.MustParseAddr(from)] = Cluster{"c" + from[len(from)-1:], target}
	}
	return out
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for !ok() {
		if !run.Wait(ctx, 5*time.Millisecond) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// from dials from an address.
func from(t *testing.T, network, source, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 5 * time.Second}
	if network == udp {
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(source)}
	}
	conn, err := d.DialContext(t.Context(), network, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

// server answers each line with its name.
func server(t *testing.T, name string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(t.Context())
	t.Cleanup(func() { ln.Close(); g.Stop(); _ = g.Wait() })
	g.Do(func(context.Context) {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			g.Do(func(ctx context.Context) {
				defer conn.Close()
				defer run.OnDone(ctx, func() { conn.Close() })()
				for in := bufio.NewScanner(conn); in.Scan(); {
					fmt.Fprintln(conn, name, in.Text())
				}
			})
		}
	})
	return ln.Addr().String()
}

func asks(conn net.Conn, text string) (string, error) {
	if _, err := fmt.Fprintln(conn, text); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func outcomes(f *Forwarder, outcome string) float64 {
	var m dto.Metric
	if err := f.metrics.Connections.WithLabelValues(outcome).Write(&m); err != nil {
		return -1
	}
	return m.GetCounter().GetValue()
}

func TestTCP(t *testing.T) {
	one, two := server(t, "one"), server(t, "two")
	all := map[string]string{"127.0.0.17": one, "127.0.0.18": two, "127.0.0.19": "127.0.0.1:1"}
	f, at := forwarder(t, tcp, all)
	first, second := from(t, tcp, "127.0.0.17", at), from(t, tcp, "127.0.0.18", at)
	for conn, want := range map[net.Conn]string{first: "one hello\n", second: "two hello\n"} {
		if got, err := asks(conn, "hello"); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	for source, outcome := range map[string]fault.Code{"127.0.0.20": fault.CodeClusterUnknown, "127.0.0.19": fault.CodeDialRefused} {
		conn := from(t, tcp, source, at)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("from %s: %v", source, err)
		}
		until(t, "it is counted", func() bool { return outcomes(f, string(outcome)) == 1 })
	}
	// A refused connection is counted before its place is free.
	until(t, "two are open", func() bool { return outcomes(f, "ok") == 2 && f.table.opened() == 2 })

	delete(all, "127.0.0.17")
	next := f.cfg
	next.Clusters = served127(all)
	f.Reload(next)
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("a connection of a cluster that has left goes on")
	}
	if got, err := asks(second, "again"); err != nil || got != "two again\n" {
		t.Errorf("the other one: %q, %v", got, err)
	}
	until(t, "its place is free", func() bool { return f.table.opened() == 1 })
}

// echoUDP answers each datagram with its name and the text.
func echoUDP(t *testing.T, name string) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(t.Context())
	t.Cleanup(func() { conn.Close(); g.Stop(); _ = g.Wait() })
	g.Do(func(context.Context) {
		b := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(name+" "+string(b[:n])), from)
		}
	})
	return conn.LocalAddr().String()
}

func TestUDP(t *testing.T) {
	f, at := forwarder(t, udp, map[string]string{"127.0.0.17": echoUDP(t, "one"), "127.0.0.18": echoUDP(t, "two")})
	for source, want := range map[string]string{"127.0.0.17": "one", "127.0.0.18": "two"} {
		conn := from(t, udp, source, at)
		for _, text := range []string{"first", "second"} {
			b := make([]byte, 100)
			if _, err := conn.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(b); err != nil || string(b[:n]) != want+" "+text {
				t.Errorf("%q, %v, want %s %s", b[:n], err, want, text)
			}
		}
	}
	if _, err := from(t, udp, "127.0.0.20", at).Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	until(t, "a stranger is counted", func() bool { return outcomes(f, string(fault.CodeClusterUnknown)) == 1 })
	if n := f.table.opened(); n != 2 {
		t.Errorf("%d flows are open", n)
	}
	next := f.cfg
	next.Clusters = nil
	f.Reload(next)
	until(t, "flows of clusters that have left end", func() bool { return f.table.opened() == 0 })
}

// TestTheAddressIsAwaited: it listens as soon as the address is there, and says so until then.
func TestTheAddressIsAwaited(t *testing.T) {
	f := New(Config{Listen: netip.MustParseAddrPort("192.0.2.1:1194"), Protocol: tcp, HealthListen: "127.0.0.1:0"},
		Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
	tries := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(ctx)
	g.Go("bind", func(ctx context.Context) error {
		return f.bind(ctx, func() error {
			select {
			case <-tries:
				return nil
			default:
				return fault.New(fault.CodeConfig, "cannot listen").Because(syscall.EADDRNOTAVAIL)
			}
		})
	})
	if why := f.unready(); why == nil || why.Code != fault.CodeVPNDown {
		t.Errorf("it is ready: %v", why)
	}
	close(tries)
	until(t, "it is ready", func() bool { return f.unready() == nil })
	cancel()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if err := f.bind(t.Context(), func() error { return syscall.EADDRINUSE }); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("an address in use: %v", err)
	}
}
