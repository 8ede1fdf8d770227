// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

func TestEveryFrontendCarriesBytesBothWays(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	payload := make([]byte, 3<<20)
	rand.Read(payload)
	for _, w := range h.ways("c1") {
		t.Run(w.name, func(t *testing.T) {
			conn, err := w.dial(runtest.Within(t), to.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			sent := make(chan error, 1)
			go func() {
				_, err := conn.Write(payload)
				sent <- err
			}()
			got := make([]byte, len(payload))
			if _, err := io.ReadFull(conn, got); err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if sha256.Sum256(got) != sha256.Sum256(payload) {
				t.Fatal("the bytes came back changed")
			}
		})
	}
}

func TestNamesResolveOnTheAgentsSide(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	_, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustEcho(t, conn, "by name")
}

// Two clusters allow the same range, and each dial reaches its own: which one
// follows from the socket or the certificate alone. The two worlds are told
// apart by the port, which only one agent of the two allows.
func TestTwoClustersWithEqualRangesStayApart(t *testing.T) {
	h := startHub(t, hubSpec{})
	one, two := named(t, "one"), named(t, "two")
	startAgent(t, agentSpec{join: h.token("c1").Join, allow: []string{"127.0.0.0/8:" + portOf(t, one)}})
	startAgent(t, agentSpec{join: h.token("c2").Join, allow: []string{"127.0.0.0/8:" + portOf(t, two)}})
	for _, cluster := range []string{"c1", "c2"} {
		mine, other, want := one, two, "one"
		if cluster == "c2" {
			mine, other, want = two, one, "two"
		}
		for _, w := range h.ways(cluster) {
			conn, err := w.dial(runtest.Within(t), mine.Addr())
			if err != nil {
				t.Fatalf("%s %s: %v", cluster, w.name, err)
			}
			io.WriteString(conn, "?")
			got, err := io.ReadAll(conn)
			if string(got) != want || err != nil {
				t.Errorf("%s %s: %q, %v", cluster, w.name, got, err)
			}
			conn.Close()
			if conn, err := w.dial(runtest.Within(t), other.Addr()); err == nil {
				conn.Close()
				t.Errorf("%s %s reached what the other cluster allows", cluster, w.name)
			}
		}
	}
}

func portOf(t *testing.T, s *runtest.Target) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestTargetThatSpeaksFirst(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := greeting(t, "220 ready\r\n")
	for _, w := range h.ways("c1") {
		conn, err := w.dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		got, err := io.ReadAll(conn)
		if string(got) != "220 ready\r\n" || err != nil {
			t.Errorf("%s: %q, %v", w.name, got, err)
		}
		conn.Close()
	}
}

// The caller finishes, the target answers afterwards.
func TestHalfCloseByTheCaller(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := replyAfterEnd(t)
	for _, w := range h.ways("c1") {
		if !w.half {
			continue
		}
		conn, err := w.dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		if _, err := io.WriteString(conn, "question"); err != nil {
			t.Fatal(err)
		}
		if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if string(got) != "got question" || err != nil {
			t.Errorf("%s: %q, %v", w.name, got, err)
		}
		conn.Close()
	}
}

// The target finishes, the caller goes on sending and is still heard.
func TestHalfCloseByTheTarget(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	heard := make(chan []byte, 1)
	to := runtest.Serve(t, func(c *net.TCPConn) {
		c.CloseWrite()
		all, _ := io.ReadAll(c)
		c.Close()
		heard <- all
	})
	for _, w := range h.ways("c1") {
		if !w.half {
			continue
		}
		conn, err := w.dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		if got, err := io.ReadAll(conn); len(got) != 0 || err != nil {
			t.Errorf("%s: the target's end reads %q, %v", w.name, got, err)
		}
		message := bytes.Repeat([]byte("late "), 50_000)
		if _, err := conn.Write(message); err != nil {
			t.Errorf("%s: write after the target's end: %v", w.name, err)
		}
		conn.(interface{ CloseWrite() error }).CloseWrite()
		select {
		case got := <-heard:
			if !bytes.Equal(got, message) {
				t.Errorf("%s: the target heard %d bytes of %d", w.name, len(got), len(message))
			}
		case <-time.After(runtest.Patience):
			t.Fatalf("%s: the target heard no end", w.name)
		}
		conn.Close()
	}
}

// A reset must not look like an end in good order.
func TestResetByTheTargetIsNoOrderlyEnd(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Serve(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 4))
		io.WriteString(c, "part")
		c.SetLinger(0)
		c.Close()
	})
	for _, w := range h.ways("c1") {
		if w.name == "connect-unix" || w.name == "konnectivity" {
			continue // neither a unix socket nor the reference's client shows an abnormal end; see the next test
		}
		conn, err := w.dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		io.WriteString(conn, "ping")
		if got, err := io.ReadAll(conn); err == nil {
			t.Errorf("%s: the reset reads as an orderly end after %q", w.name, got)
		}
		conn.Close()
	}
}

// A reset by the target ends the caller's connection at once on every frontend.
func TestResetByTheTargetEndsTheConnection(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Serve(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 4))
		c.SetLinger(0)
		c.Close()
	})
	for _, w := range h.ways("c1") {
		conn, err := w.dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		io.WriteString(conn, "ping")
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: no end came", w.name)
		}
		conn.Close()
	}
	runtest.Eventually(t, "no stream is left", func() bool { return h.status("c1").Streams == 0 })
}

// A reset by the caller reaches the target as a reset.
func TestResetByTheCallerReachesTheTarget(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	ends := make(chan error, 1)
	to := runtest.Serve(t, func(c *net.TCPConn) {
		c.Write([]byte("x"))
		_, err := io.Copy(io.Discard, c)
		ends <- err
	})
	cert := h.ways("c1")[1]
	conn, err := cert.dial(runtest.Within(t), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(conn, make([]byte, 1))
	raw := conn.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn)
	raw.SetLinger(0)
	raw.Close()
	select {
	case err := <-ends:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the target saw %v, not a reset", err)
		}
	case <-time.After(runtest.Patience):
		t.Fatal("the target saw no end")
	}
}

// The figures of status are those of the streams.
func TestStatusCountsStreamsAndBytes(t *testing.T) {
	h, a := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	conn, err := h.admin.Stream(runtest.Within(t), "c1", to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, conn, "hello")
	// Bytes are counted once they are written, and the echo may be here before that.
	runtest.Eventually(t, "the bytes are counted", func() bool {
		st := h.status("c1")
		return len(st.Agents) == 1 && st.Agents[0].BytesIn >= 5 && st.Agents[0].BytesOut >= 5
	})
	st := h.status("c1")
	ag := st.Agents[0]
	if !ag.Connected || ag.Streams != 1 || st.Streams != 1 || ag.BytesIn != 5 || ag.BytesOut != 5 || ag.Draining {
		t.Errorf("status: %+v", ag)
	}
	if len(ag.Ranges) != 1 || ag.Ranges[0] != "127.0.0.0/8" || ag.Peer == "" || ag.CertificateEnd.IsZero() || ag.Since.IsZero() {
		t.Errorf("status: %+v", ag)
	}
	runtest.Eventually(t, "a round trip is known", func() bool { return h.status("c1").Agents[0].RTTMillis > 0 })
	conn.Close()
	runtest.Eventually(t, "the stream is gone", func() bool { return h.status("c1").Agents[0].Streams == 0 })
	if err := a.stop(); err != nil {
		t.Errorf("agent: %v", err)
	}
	runtest.Eventually(t, "the agent is shown as gone", func() bool {
		ag := h.status("c1").Agents[0]
		return !ag.Connected && ag.LastDisconnect != nil && ag.LastDisconnect.Reason != "" && ag.BytesIn == 5
	})
}

// A stream on which nothing moves ends at the idle limit, on both sides.
func TestIdleStreamEnds(t *testing.T) {
	h, _ := pair(t, hubSpec{extra: "streams: {idleTimeout: 400ms}"}, agentSpec{})
	gone := make(chan struct{}, 8)
	to := runtest.Serve(t, func(c *net.TCPConn) {
		io.Copy(c, c)
		c.Close()
		gone <- struct{}{}
	})
	for _, w := range h.ways("c1") {
		if w.name == "konnectivity" {
			continue // kube-apiserver's own idle rules hold there
		}
		conn, err := w.dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		if _, err := io.WriteString(conn, "once"); err != nil { // what comes back may come too late
			t.Fatalf("%s: %v", w.name, err)
		}
		if _, err := io.ReadAll(conn); isTimeout(err) {
			t.Errorf("%s: the idle stream goes on", w.name)
		}
		conn.Close()
		select {
		case <-gone:
		case <-time.After(runtest.Patience):
			t.Fatalf("%s: the target was not told", w.name)
		}
	}
	idle := 0.0
	for _, m := range family(t, h.reg, "tombolo_hub_stream_ends_total").GetMetric() {
		if m.GetLabel()[0].GetValue() == string(fault.CodeStreamIdle) {
			idle = m.GetCounter().GetValue()
		}
	}
	if idle != 3 {
		t.Errorf("%v of 3 ends are counted as idle", idle)
	}
}
