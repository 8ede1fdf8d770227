// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/lab"
)

// TestRouteInAStorm: one packet in a hundred is lost, one caller does not read, one cluster sends junk, and agent, hub and
// route are killed in turn. What is not concerned goes on, and what is comes back by itself.
func TestRouteInAStorm(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t)
	r.junk("10.42.0.80:7002")
	r.startRoute()
	both := func() error {
		return errors.Join(r.greets("10.42.0.80:7000", "c1"), r.greets("240.2.0.80:7000", "c2"))
	}
	r.eventually("both greet", reconnectWithin, r.route, both)
	for _, h := range []*lab.Host{r.world.Control, r.world.Sites[0].Agents[0], r.host} {
		loss := lab.Lose(h, "eth0", 100)
		if err := errors.Join(lab.SinglePackets(h, "eth0"), loss.On()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = loss.Off() }) // its namespace may have gone
	}
	t.Run("a caller that does not read", r.stalled)
	t.Run("a cluster that sends junk", r.junked)

	for _, x := range []struct {
		what string
		of   *role
	}{{"the agent", r.agents[0]}, {"the hub", r.hub}, {"the route", r.route}} {
		t.Run(x.what+" is killed", func(t *testing.T) {
			conn, in, _, err := r.greeted("10.42.0.80:7000")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			x.of.process.Kill()
			<-x.of.process.Done()
			over := func() {
				if _, err := in.ReadByte(); !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("what was open: %v", err) // neither an end in order, nor silence
				}
			}
			if x.of != r.route {
				over()
			}
			begun := time.Now()
			switch x.of {
			case r.hub:
				r.startHub()
			case r.route:
				r.startRoute()
			default:
				r.start(x.of)
			}
			r.eventually("both greet again", reconnectWithin, r.route, both)
			t.Attr("figure", fmt.Sprintf("routed connections after a kill -9 of %s, 1 %% loss: %v after its start", x.what,
				time.Since(begun).Round(100*time.Millisecond)))
			if x.of == r.route { // until it is back a caller that sends nothing hears nothing, as behind any router
				_, _ = io.WriteString(conn, "x") // the answer counts
				over()
			}
		})
	}
}

// stalled: of a caller that does not read so much waits as its window takes, and nobody else waits.
func (r *routeRig) stalled(t *testing.T) {
	conn, _, _, err := r.greeted("10.42.0.80:7000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := r.memory()
	blocked := make(chan error, 1)
	go func() { // until the far end takes no more: it echoes, and nobody reads
		_, err := io.Copy(conn, rand.Reader)
		blocked <- err
	}()
	const size = 5_000_000
	other, in, _, err := r.greeted("10.42.0.80:7000")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	sent, got := sha256.New(), sha256.New()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(other, io.TeeReader(io.LimitReader(rand.Reader, size), sent))
		done <- errors.Join(err, other.CloseWrite())
	}()
	n, err := io.Copy(got, in)
	if err := errors.Join(err, <-done); err != nil || n != size || string(sent.Sum(nil)) != string(got.Sum(nil)) {
		t.Errorf("%d of %d bytes came back beside it: %v", n, size, err)
	}
	if grown := r.memory() - before; grown > 64<<10 {
		t.Errorf("it took %d KiB", grown)
	}
	conn.Close()
	<-blocked
}

// memory is what the route has in memory, in KiB (VmRSS).
func (r *routeRig) memory() int {
	r.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.route.process.Pid()))
	if err != nil {
		r.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// junk answers each datagram in the first cluster with two hundred large ones, and a connection with a flood and a reset.
func (r *routeRig) junk(addr string) {
	r.t.Helper()
	site := r.world.Sites[0].Backend
	udp, err := site.ListenUDP("udp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	tcp, err := site.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	flood := make([]byte, 60_000)
	_, _ = rand.Read(flood)
	go func() {
		for buf := make([]byte, 1500); ; {
			_, from, err := udp.ReadFromUDP(buf)
			if err != nil {
				return
			}
			for i := range 200 {
				_, _ = udp.WriteToUDP(flood[:1+i*295], from) // what does not fit is lost
			}
		}
	}()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(flood)
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
}

// junked: floods of datagrams and resets of one cluster cost the other one nothing, and the flow is bounded.
func (r *routeRig) junked(t *testing.T) {
	before := r.memory()
	for range 5 {
		udp, err := r.host.DialContext(t.Context(), "udp", "10.42.0.80:7002")
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
		if _, err := udp.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		tcp, err := r.dial("10.42.0.80:7002")
		if err == nil {
			_, err = io.Copy(io.Discard, tcp)
			tcp.Close()
		}
		if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.ECONNREFUSED) { // that comes before anybody looks
			t.Errorf("a reset of the far end: %v", err)
		}
		if err := r.greets("240.2.0.80:7000", "c2"); err != nil {
			t.Error(err)
		}
	}
	if grown := r.memory() - before; grown > 64<<10 {
		t.Errorf("it took %d KiB", grown)
	}
	r.awaitReady()
}
