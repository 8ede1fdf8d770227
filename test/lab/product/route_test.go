// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
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
	r.awaitReady()
}

func (r *routeRig) awaitReady() {
	r.t.Helper()
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
