// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

const (
	routeAddr   = "198.51.100.40"
	backendAddr = "fd00:10::80" // on the agent's own machine
)

// routeRig is a machine that routes two clusters with equal ranges: c1 by its own addresses, c2 by others.
type routeRig struct {
	*rig
	host   *lab.Host
	config string
	route  *role
	agents []*role // of each cluster
}

func newRouteRig(t *testing.T) *routeRig {
	r := &routeRig{rig: newRig(t, "route", 2, 1)}
	r.host = r.server("route", routeAddr)
	r.startHub()
	agent := r.world.Sites[0].Agents[0]
	lo, err := agent.Netlink().LinkByName("lo")
	if err == nil {
		err = agent.Netlink().AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(backendAddr)), Flags: unix.IFA_F_NODAD})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.serve(agent, "["+backendAddr+"]:7000", "c1")
	r.echoes(agent, "["+backendAddr+"]:7001", "c1")
	for i, site := range r.world.Sites {
		r.echoes(site.Backend, lab.BackendAddr+":7001", clusterOf(i))
		r.resolves(site.Backend, lab.BackendAddr+":5353")
		// As containerd does for pods: who sends echo requests needs no privilege.
		if err := site.Agents[0].Sysctl("ipv4/ping_group_range", "0 2147483647"); err != nil {
			t.Fatal(err)
		}
	}
	dir := r.directory("route")
	text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: RouteConfig\nrunDir: %s/run\nlog: {level: debug}\nclusters:\n", dir)
	for i, ranges := range []string{
		"[{range: 10.42.0.0/24}, {range: 10.43.0.0/24}, {range: 'fd00:10::/64'}]", "[{range: 10.42.0.0/24, as: 240.2.0.0/24}]",
	} {
		c := clusterOf(i)
		x := r.startAgent(i, 0)
		r.agents = append(r.agents, x)
		if i == 0 { // which allows IPv6 too, and nothing of 10.43.0.0/24
			x.process.Kill()
			<-x.process.Done()
			x.args = append(x.args, "--allow", "fd00:10::/64")
			r.start(x)
		}
		r.verb("certificate", "issue", "--role", "route", "--cluster", c, "--name", "r1", "--out", filepath.Join(dir, c+".pem"))
		text += fmt.Sprintf("- {name: %s, hubs: ['%s:8443'], certificate: %s/%s.pem, ranges: %s, "+
			"dns: {server: '%s:5353', zone: %s}}\n", c, lab.ControlAddr, dir, c, ranges, lab.BackendAddr,
			[]string{"cluster.local", "c2.internal"}[i])
	}
	r.config = filepath.Join(dir, "route.yaml")
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.route = &role{host: r.host, log: filepath.Join(r.dir, "route.log"), args: []string{"route", "--config", r.config}}
	return r
}

func (r *routeRig) startRoute() {
	r.t.Helper()
	r.route.process = labtest.Start(r.t, r.host, r.route.log, nil, append([]string{r.program}, r.route.args...)...)
	r.eventually("the route is ready", startWithin, r.route, func() error {
		return labtest.Ready(r.host, "http://127.0.0.1:8448/readyz", nil)
	})
}

// dial connects from the machine that routes.
func (r *routeRig) dial(to string) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), startWithin)
	defer cancel()
	conn, err := r.host.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn.(*net.TCPConn), nil
}

// greeted connects, and says who greets.
func (r *routeRig) greeted(to string) (*net.TCPConn, *bufio.Reader, string, error) {
	conn, err := r.dial(to)
	if err != nil {
		return nil, nil, "", err
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		conn.Close()
		return nil, nil, "", err
	}
	return conn, in, strings.TrimSpace(strings.TrimPrefix(line, greeting)), nil
}

func (r *routeRig) greets(to, want string) error {
	conn, _, who, err := r.greeted(to)
	if err != nil {
		return err
	}
	conn.Close()
	if who != want {
		return fmt.Errorf("%s is in %s, want %s", to, who, want)
	}
	return nil
}

// TestRoute routes two clusters with equal ranges on a machine of its own.
func TestRoute(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t)
	r.startRoute()
	for to, want := range map[string]string{"10.42.0.80:7000": "c1", "240.2.0.80:7000": "c2", "[" + backendAddr + "]:7000": "c1"} {
		r.eventually(to+" greets", reconnectWithin, r.route, func() error { return r.greets(to, want) })
	}
	t.Run("failures", r.failures)
	t.Run("bytes", r.bytes)
	t.Run("a reset", r.resets)
	t.Run("datagrams", r.datagrams)
	t.Run("echo requests", r.pings)
	t.Run("names", r.names)
	t.Run("refused starts", r.refusedStarts)

	out, err := labtest.Run(r.host, 15*time.Second, nil, r.program, "route", "status", "--admin-socket", filepath.Join(r.dir, "route/run/route/route.sock"))
	if err != nil || !strings.Contains(out, "10.42.0.0/24 as 240.2.0.0/24") || !strings.Contains(out, "/cluster/c2/route/r1") {
		t.Errorf("status: %v\n%s", err, out)
	}
	out, err = labtest.Run(r.host, 15*time.Second, nil, r.program, "route", "explain", "240.2.0.80:7000", "--admin-socket",
		filepath.Join(r.dir, "route/run/route/route.sock"))
	if err != nil || !strings.Contains(out, "240.2.0.80:7000 is 10.42.0.80:7000 in cluster c2") {
		t.Errorf("explain: %v\n%s", err, out)
	}

	for asked, want := range map[string]string{
		"192.0.0.53:53":                    "is the resolver",
		"web.default.svc.c2.internal:7000": "its name is web.default.svc.cluster.local in cluster c2, where " + lab.BackendAddr + ":5353 is asked",
	} {
		out, err := labtest.Run(r.host, 15*time.Second, nil, r.program, "route", "explain", asked, "--admin-socket",
			filepath.Join(r.dir, "route/run/route/route.sock"))
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("explain: %v\n%s", err, out)
		}
	}

	r.route.process.Kill()
	<-r.route.process.Done()
	if err := r.greets("10.42.0.80:7000", "c1"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("after a kill: %v", err) // and nothing leaves by the default route
	}
	conn, err := r.host.DialContext(t.Context(), "udp", "192.0.0.53:53")
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("after a kill, a question for a name: %v", err)
	}
	r.startRoute()
	r.eventually("it greets after a restart", reconnectWithin, r.route, func() error { return r.greets("240.2.0.80:7000", "c2") })
	t.Run("no agent", r.noAgent)
	t.Run("a drain", r.drains)
	r.nothingLeft()
	t.Run("refused alone", r.refusedAlone)
}

// failures arrive as on the cluster's own network, and at once.
func (r *routeRig) failures(t *testing.T) {
	for _, c := range []struct {
		what, to, code string
		want           []error
	}{
		{"refused", "10.42.0.80:7999", "dial_refused", []error{unix.ECONNREFUSED}},
		{"refused, mapped", "240.2.0.80:7999", "dial_refused", []error{unix.ECONNREFUSED}},
		{"refused, IPv6", "[" + backendAddr + "]:7999", "dial_refused", []error{unix.ECONNREFUSED}},
		{"unreachable", "10.42.0.99:80", "dial_unreachable", []error{unix.EHOSTUNREACH, unix.ENETUNREACH}},
		{"denied", "10.43.0.1:80", "policy_denied", []error{unix.EHOSTUNREACH}},
	} {
		begun := time.Now()
		conn, err := r.dial(c.to)
		if err == nil {
			conn.Close()
		}
		is := false
		for _, w := range c.want {
			is = is || errors.Is(err, w)
		}
		if !is {
			t.Errorf("%s: %s: %v", c.what, c.to, err)
		}
		t.Logf("%s: %v after %v", c.what, err, time.Since(begun))
		r.eventually("the log says "+c.code, startWithin, r.route, func() error {
			log, err := os.ReadFile(r.route.log)
			if err == nil && !strings.Contains(string(log), "asked="+c.to) {
				err = errors.New("nothing of " + c.to)
			}
			if err == nil && !strings.Contains(string(log), "code="+c.code) {
				err = errors.New("no " + c.code)
			}
			return err
		})
	}
}

// bytes are 50 MB that come back as they were, after the end of those that were sent.
func (r *routeRig) bytes(t *testing.T) {
	const size = 50_000_000
	for _, to := range []string{"10.42.0.80:7000", "[" + backendAddr + "]:7000"} {
		conn, in, _, err := r.greeted(to)
		if err != nil {
			t.Fatal(err)
		}
		sent, got := sha256.New(), sha256.New()
		done := make(chan error, 1)
		begun := time.Now()
		go func() {
			_, err := io.Copy(conn, io.TeeReader(io.LimitReader(rand.Reader, size), sent))
			done <- errors.Join(err, conn.CloseWrite())
		}()
		n, err := io.Copy(got, in)
		if err := errors.Join(err, <-done); err != nil || n != size || string(sent.Sum(nil)) != string(got.Sum(nil)) {
			t.Errorf("%s: %d of %d bytes came back: %v", to, n, size, err)
		}
		t.Logf("%s: %d bytes there and back in %v", to, size, time.Since(begun))
		conn.Close()
	}
}

// resets of the caller reach the target, which then takes no more: the machine forgets the connection.
func (r *routeRig) resets(t *testing.T) {
	conn, _, _, err := r.greeted("10.42.0.80:7000")
	if err != nil {
		t.Fatal(err)
	}
	conn.SetLinger(0)
	conn.Close()
	r.eventually("the connection is gone", startWithin, r.route, func() error {
		out, err := labtest.Run(r.host, 15*time.Second, nil, r.program, "route", "status", "--admin-socket",
			filepath.Join(r.dir, "route/run/route/route.sock"))
		if err == nil && !strings.Contains(out, "\n0 of ") {
			err = errors.New(out)
		}
		return err
	})
}

// echoes answers each datagram with the cluster's name and itself.
func (r *routeRig) echoes(h *lab.Host, addr, cluster string) {
	r.t.Helper()
	conn, err := h.ListenUDP("udp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDP(buf)
			if err != nil {
				return
			}
			conn.WriteToUDP(append([]byte(cluster+" "), buf[:n]...), from)
		}
	}()
}

// datagrams reach the cluster that is meant, whole, and their answers come back; where nobody listens, the caller is
// told as on the cluster's own network.
func (r *routeRig) datagrams(t *testing.T) {
	ask := func(to string, data []byte) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), startWithin)
		defer cancel()
		conn, err := r.host.DialContext(ctx, "udp", to)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(startWithin))
		if _, err := conn.Write(data); err != nil {
			return "", err
		}
		buf := make([]byte, 1<<16)
		n, err := conn.Read(buf)
		return string(buf[:n]), err
	}
	for to, cluster := range map[string]string{"10.42.0.80": "c1", "240.2.0.80": "c2", "[" + backendAddr + "]": "c1"} {
		for _, size := range []int{0, 1, 1400, 30_000} {
			data := make([]byte, size)
			rand.Read(data)
			if got, err := ask(to+":7001", data); err != nil || got != cluster+" "+string(data) {
				t.Errorf("%s: %d bytes: %d came back of %.2s: %v", to, size, len(got), got, err)
			}
		}
		if got, err := ask(to+":7998", []byte("x")); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: nobody listens: %q, %v", to, got, err)
		}
	}
	if _, err := ask("10.43.0.1:53", []byte("x")); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("denied: %v", err)
	}
}

// pings are answered when the far end has answered, and only then.
func (r *routeRig) pings(t *testing.T) {
	for to, want := range map[string]string{
		lab.BackendAddr: "3 received", "240.2.0.80": "3 received", backendAddr: "3 received",
		"10.42.0.99": "0 received", "10.43.0.1": "Packet filtered",
	} {
		out, err := labtest.Run(r.host, 30*time.Second, nil, "ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", to)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("%s: not %q: %s", to, want, out)
		}
	}
}

// resolves answers for a cluster: web has the address of the backend, many has a hundred others.
func (r *routeRig) resolves(h *lab.Host, addr string) {
	r.t.Helper()
	conn, err := h.ListenUDP("udp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := h.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	answer := func(query []byte, most int) []byte {
		var m dnsmessage.Message
		if m.Unpack(query) != nil || len(m.Questions) != 1 {
			return nil
		}
		m.Response, m.Additionals = true, nil
		name := m.Questions[0].Name
		add := func(a [4]byte) {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: a}})
		}
		switch {
		case m.Questions[0].Type != dnsmessage.TypeA:
		case name.String() == "web.default.svc.cluster.local.":
			add(netip.MustParseAddr(lab.BackendAddr).As4())
		case name.String() == "many.default.svc.cluster.local.":
			for i := range byte(100) {
				add([4]byte{10, 42, 0, i})
			}
		default:
			m.RCode = dnsmessage.RCodeNameError
		}
		text, err := m.Pack()
		if err == nil && len(text) > most {
			m.Truncated, m.Answers = true, nil
			text, err = m.Pack()
		}
		if err != nil {
			return nil
		}
		return text
	}
	go func() {
		buf := make([]byte, 1<<12)
		for {
			n, from, err := conn.ReadFromUDP(buf)
			if err != nil {
				return
			}
			conn.WriteToUDP(answer(buf[:n], 1232), from)
		}
	}()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					var head [2]byte
					if _, err := io.ReadFull(c, head[:]); err != nil {
						return
					}
					query := make([]byte, binary.BigEndian.Uint16(head[:]))
					if _, err := io.ReadFull(c, query); err != nil {
						return
					}
					text := answer(query, 1<<16)
					c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
				}
			}()
		}
	}()
}

// names of each cluster lead to it by the addresses that it has here.
func (r *routeRig) names(t *testing.T) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return r.host.DialContext(ctx, network, "192.0.0.53:53")
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, want := range map[string]string{
		"web.default.svc.cluster.local.": "10.42.0.80", "web.default.svc.c2.internal.": "240.2.0.80",
	} {
		got, err := resolver.LookupHost(ctx, name)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := resolver.LookupHost(ctx, "many.default.svc.c2.internal."); err != nil || len(got) != 100 || !strings.HasPrefix(got[0], "240.2.0.") {
		t.Errorf("by TCP: %v, %v", got, err)
	}
	for name, missing := range map[string]bool{"none.default.svc.c2.internal.": true, "example.com.": false} {
		var e *net.DNSError
		if got, err := resolver.LookupHost(ctx, name); !errors.As(err, &e) || e.IsNotFound != missing {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// refused starts change nothing.
func (r *routeRig) refused(t *testing.T, starts map[string]start) {
	t.Helper()
	for what, c := range starts {
		_, err := labtest.Run(r.host, 30*time.Second, nil, r.program, append([]string{"route"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

type start struct {
	args []string
	want string
}

// refusedStarts are those that a running one is in the way of, and those that nobody could run.
func (r *routeRig) refusedStarts(t *testing.T) {
	r.refused(t, map[string]start{
		"a second one":         {[]string{"--config", r.config}, "is served by a live process"},
		"a smaller range":      {r.flags("c1", "--map", "10.42.0.0/24=240.2.0.0/25"), "is smaller than"},
		"nothing to be routed": {r.flags("c1"), "there is no range"},
	})
	if err := r.greets("10.42.0.80:7000", "c1"); err != nil {
		t.Errorf("after refused starts: %v", err)
	}
}

func (r *routeRig) flags(certificate string, more ...string) []string {
	return append([]string{"--certificate", filepath.Join(r.dir, "route", certificate+".pem"), "--hub", lab.ControlAddr + ":8443"}, more...)
}

// refusedAlone are starts that would harm this machine, or could not work.
func (r *routeRig) refusedAlone(t *testing.T) {
	r.verb("certificate", "issue", "--role", "client", "--cluster", "c1", "--name", "x", "--out", filepath.Join(r.dir, "route/client.pem"))
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority = netlink.FAMILY_V4, 181, 100
	if err := r.host.Netlink().RuleAdd(rule); err != nil {
		t.Fatal(err)
	}
	r.refused(t, map[string]start{
		"the hub is covered": {r.flags("c1", "--map", "10.42.0.0/24=198.51.100.0/24"), "covers the hub " + lab.ControlAddr + ":8443"},
		"another role":       {r.flags("client", "--range", "10.42.0.0/24"), "/cluster/c1/client/x"},
		"a table in use":     {r.flags("c1", "--range", "10.42.0.0/24"), "kernel_clash: ipv4 rule 100: from all lookup 181: it leads into table 181"},
	})
	if err := r.host.Netlink().RuleDel(rule); err != nil {
		t.Error(err)
	}
	r.nothingLeft()
}

// nothingLeft looks for a link, a rule or a route.
func (r *routeRig) nothingLeft() {
	r.t.Helper()
	h := r.host.Netlink()
	if _, err := h.LinkByName("tombolo-route"); err == nil {
		r.t.Error("the link is still there")
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := h.RuleList(family)
		if err != nil {
			r.t.Error(err)
		}
		for _, rule := range rules {
			if rule.Table == 181 {
				r.t.Errorf("a rule is still there: %v", rule)
			}
		}
		routes, err := h.RouteListFiltered(family, &netlink.Route{Table: 181}, netlink.RT_FILTER_TABLE)
		if err != nil || len(routes) > 0 {
			r.t.Errorf("routes are still there: %v, %v", routes, err)
		}
	}
}
