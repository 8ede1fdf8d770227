// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestRouteRate carries bytes into a cluster and out of it: by a routed connection, and by a CONNECT of the same machine
// to the same hub, in turns. All bytes arrive; how fast, and at which cost, it prints: 'make bench-route' takes more, and
// OpenVPN at MTU 1500 through a CONNECT proxy beside them. TOMBOLO_LAB_LOSS drops one packet in so many on the cluster's
// uplink, in each direction.
func TestRouteRate(t *testing.T) {
	rounds, size, idle := 1, int64(4<<20), 20
	if n, err := strconv.Atoi(os.Getenv("TOMBOLO_LAB_ROUNDS")); err == nil {
		rounds, size, idle = n, 512<<20, 2000
	}
	if mib, err := strconv.ParseInt(os.Getenv("TOMBOLO_LAB_MIB"), 10, 64); err == nil {
		size = mib << 20
	}
	var samples routeSamples
	loss, err := strconv.Atoi(os.Getenv("TOMBOLO_LAB_LOSS"))
	lossy := err == nil && loss > 1
	if lossy {
		size, idle = 64<<20, 20
	}
	r := newRouteRig(t)
	r.counts(r.world.Sites[0].Backend, lab.BackendAddr+":7002")
	r.verb("certificate", "issue", "--role", "client", "--cluster", "c1", "--name", "x", "--out", filepath.Join(r.dir, "route/client.pem"))
	r.startRoute()
	const target = lab.BackendAddr + ":7002"
	r.eventually("a routed connection", reconnectWithin, r.route, func() error {
		conn, err := r.dial(target)
		if err == nil {
			conn.Close()
		}
		return err
	})
	pids := r.pids()
	ways := []way{
		{"CONNECT", func() (net.Conn, error) { return r.connect(target) }, pids},
		{"routed", func() (net.Conn, error) { return r.dial(target) }, append(slices.Clone(pids), r.route.process.Pid())},
	}
	if rounds > 1 || idle > 20 || lossy {
		ways = append(ways, r.byOpenVPN(t))
	}
	if lossy {
		ways = append(ways, r.direct("TLS", "7003", true), r.direct("TCP", "7004", false))
		r.lose(uint32(loss))
	}
	for _, up := range []bool{true, false} {
		results := map[string][]figure{}
		ratios := map[string][]float64{}
		for round := range rounds {
			for i := range ways {
				w := ways[(round+i)%len(ways)]
				f := w.bulk(t, up, size)
				results[w.name] = append(results[w.name], f)
				samples.add(map[bool]string{true: "up", false: "down"}[up], w.name, round,
					map[string]float64{"rate": f.rate, "cost": f.cpu})
			}
			for _, w := range ways {
				if w.name != "routed" {
					ratios[w.name] = append(ratios[w.name], results["routed"][round].rate/results[w.name][round].rate)
				}
			}
		}
		for _, w := range ways {
			f := middle(results[w.name], func(f figure) float64 { return f.rate })
			t.Logf("up %-5v %-8s %6.0f MB/s  %5.2f s of processors per GB", up, w.name, f.rate, f.cpu)
		}
		for name, all := range ratios {
			t.Logf("up %-5v routed / %s: %.2f", up, name, middle(all, func(x float64) float64 { return x }))
		}
	}
	for _, w := range ways {
		var dials, turns []float64
		for range 20 * rounds {
			dial, turn := w.turn(t)
			dials, turns = append(dials, dial.Seconds()*1e3), append(turns, turn.Seconds()*1e3)
		}
		same := func(x float64) float64 { return x }
		t.Logf("%-8s a connection takes %.2f ms, a byte back and forth %.2f ms", w.name, middle(dials, same), middle(turns, same))
	}
	before := labtest.Resident(t, r.route.process.Pid())
	for range idle {
		conn, err := r.dial(target)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	each := float64(labtest.Resident(t, r.route.process.Pid())-before) / float64(idle)
	samples.add("idle", "routed", 0, map[string]float64{"routeBytes": each})
	t.Logf("%d idle connections: %.1f KiB each in 'tombolo route'", idle, each/1024)
	samples.write(t)
}

// routeSamples are what make bench-quick reads: records of test/bench, a line each.
type routeSamples struct{ lines []any }

func (s *routeSamples) add(variant, way string, round int, values map[string]float64) {
	s.lines = append(s.lines, map[string]any{"variant": variant, "transport": way, "round": round, "values": values})
}

// write writes them into the file of TOMBOLO_LAB_SAMPLES, if it is set.
func (s *routeSamples) write(t *testing.T) {
	t.Helper()
	file := os.Getenv("TOMBOLO_LAB_SAMPLES")
	if file == "" {
		return
	}
	var text bytes.Buffer
	for _, line := range s.lines {
		if err := json.NewEncoder(&text).Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// byOpenVPN is a way by OpenVPN, from the machine that routes, through the edge.
func (r *routeRig) byOpenVPN(t *testing.T) way {
	v := vpnOn(r.rig, r.host, routeAddr)
	server := v.startServer(v.seed, "server", fmt.Sprintf("identity: {bundle: %s}\n", v.path("server.pem")))
	v.ready(v.startClient(0, throughEdge), 8450)
	v.ready(server, 8449)
	pids := []int{v.front.process.Pid(), v.openVPN(v.path("run-server/vpn-server/openvpn")), v.openVPN(v.path("run-client-1/vpn-client/0"))}
	return way{"OpenVPN", func() (net.Conn, error) { return r.dial(mapped("7002")) }, pids}
}

// direct is one TCP connection over the cluster's uplink with nothing between, made from the cluster as an agent makes
// its own; with TLS on it, or bare. No way through one connection of an agent has more.
func (r *routeRig) direct(name, port string, secure bool) way {
	r.t.Helper()
	addr := net.JoinHostPort(lab.ControlAddr, port)
	ln, err := r.world.Control.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	cert, _, err := trust.ReadBundle("client", filepath.Join(r.dir, "route/client.pem"))
	if err != nil {
		r.t.Fatal(err)
	}
	dial := func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(r.t.Context(), startWithin)
		defer cancel()
		far, err := r.world.Sites[0].Backend.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		near, err := ln.Accept()
		if err != nil {
			return nil, errors.Join(err, far.Close())
		}
		if secure {
			near = tls.Server(near, &tls.Config{Certificates: []tls.Certificate{*cert}})
			far = tls.Client(far, &tls.Config{InsecureSkipVerify: true}) // both ends are this test
		}
		go countBytes(far)
		return near, nil
	}
	return way{name, dial, []int{os.Getpid()}}
}

// lose drops one packet in so many on the cluster's uplink.
func (r *routeRig) lose(oneIn uint32) {
	r.t.Helper()
	for h, link := range map[*lab.Host]string{r.world.Sites[0].Gateway: "wan", r.world.Internet: "site1"} {
		if err := errors.Join(lab.SinglePackets(h, link), lab.Lose(h, link, oneIn).On()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// way is one way of carrying bytes, with the processes that do it.
type way struct {
	name string
	dial func() (net.Conn, error)
	pids []int
}

// figure is a rate in 10^6 bytes a second, and what processors spent on 10^9 bytes.
type figure struct{ rate, cpu float64 }

func middle[T any](all []T, by func(T) float64) T {
	slices.SortFunc(all, func(x, y T) int { return cmp.Compare(by(x), by(y)) })
	return all[len(all)/2]
}

// pids are the processes of hub and agent.
func (r *routeRig) pids() []int { return []int{r.hub.process.Pid(), r.agents[0].process.Pid()} }

// connect dials by HTTP CONNECT.
func (r *routeRig) connect(to string) (net.Conn, error) {
	cert, ca, err := trust.ReadBundle("client", filepath.Join(r.dir, "route/client.pem"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), startWithin)
	defer cancel()
	raw, err := r.host.DialContext(ctx, "tcp", lab.ControlAddr+":8443")
	if err != nil {
		return nil, err
	}
	check := func() trust.Check { return trust.Check{Roots: trust.RootsOf(ca), Now: time.Now()} }
	cfg := trust.HubClientConfig(check, cert, "http/1.1")
	cfg.ServerName = trust.ServerName(lab.ControlAddr + ":8443")
	conn := tls.Client(raw, cfg)
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, 16)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusOK || in.Buffered() > 0 {
		return nil, errors.Join(err, fmt.Errorf("no stream: %+v", res))
	}
	return conn, nil
}

// counts has a host take, or give, as many bytes as it is asked for in 8 bytes; for one byte it gives that back.
func (r *routeRig) counts(h *lab.Host, addr string) {
	r.t.Helper()
	ln, err := h.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go countBytes(c)
		}
	}()
}

// countBytes takes or gives bytes on a connection, as counts says.
func countBytes(c net.Conn) {
	defer c.Close()
	block := make([]byte, 256<<10)
	for {
		var asks [9]byte // what to do, and with how many
		if _, err := io.ReadFull(c, asks[:1]); err != nil {
			return
		}
		if asks[0] == 0 {
			c.Write(asks[:1])
			continue
		}
		if _, err := io.ReadFull(c, asks[1:]); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint64(asks[1:]))
		if asks[0] == 1 {
			from := struct{ io.Reader }{io.LimitReader(c, n)}
			if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, from, block); err != nil {
				return
			}
			c.Write(asks[:1])
			continue
		}
		for ; n > 0; n -= int64(len(block)) {
			if _, err := c.Write(block[:min(n, int64(len(block)))]); err != nil {
				return
			}
		}
	}
}

// bulk carries bytes and measures it.
func (w way) bulk(t *testing.T, up bool, size int64) figure {
	t.Helper()
	conn, err := w.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	block := make([]byte, 256<<10)
	carry := func(size int64) error {
		asks := binary.BigEndian.AppendUint64([]byte{2}, uint64(size))
		if up {
			asks[0] = 1
		}
		if _, err := conn.Write(asks); err != nil {
			return err
		}
		if !up {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.LimitReader(conn, size)}, block)
			return err
		}
		for n := size; n > 0; n -= int64(len(block)) {
			if _, err := conn.Write(block[:min(n, int64(len(block)))]); err != nil {
				return err
			}
		}
		_, err := io.ReadFull(conn, block[:1])
		return err
	}
	err = carry(size / 8) // windows grow
	before, began := labtest.Spent(t, w.pids), time.Now()
	if err = errors.Join(err, carry(size)); err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	took, cpu := time.Since(began), labtest.Spent(t, w.pids)-before
	return figure{float64(size) / 1e6 / took.Seconds(), cpu.Seconds() / (float64(size) / 1e9)}
}

// turn measures how long a connection takes, and a byte back and forth by it.
func (w way) turn(t *testing.T) (dial, turn time.Duration) {
	t.Helper()
	began := time.Now()
	conn, err := w.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	dial = time.Since(began)
	conn.SetDeadline(time.Now().Add(time.Minute))
	for range 3 { // the last counts
		began = time.Now()
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		turn = time.Since(began)
	}
	return dial, turn
}
