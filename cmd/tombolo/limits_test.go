// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// limitedWorld is a hub with limits from a file, and an agent of c1.
func limitedWorld(t *testing.T, limits string) (w *world, socket string, reload func(limits string)) {
	t.Helper()
	file := filepath.Join(runtest.Dir(t), "hub.yaml")
	write := func(limits string) {
		t.Helper()
		text := "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nclusters: [{name: c1, sockets: [{protocol: connect}]}, {name: c2, sockets: [{protocol: connect}]}]\n" + limits
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(limits)
	w = startHub(t, "--config", file)
	w.join = strings.TrimSpace(strings.TrimPrefix(must(t, "token", "create", "--cluster", "c1"), "tombolo agent --join "))
	w.health = runtest.Address(8445)
	w.agent = w.runAgent(t)
	return w, filepath.Join(w.dir, "run/clusters/c1/connect.sock"), func(limits string) {
		write(limits)
		if err := w.hub.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
}

// refusedConnect asks for a tunnel and gives the answer, as far as it fits.
func refusedConnect(t *testing.T, path, to string) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(runtest.Patience))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", to)
	head := make([]byte, 4<<10)
	n, err := c.Read(head)
	if err != nil {
		t.Fatal(err)
	}
	return string(head[:n])
}

// A caller beyond a bound is told so in the status line, status shows the bound, and
// SIGHUP raises it under streams that are live.
func TestLimitsOfARunningHub(t *testing.T) {
	const most = 32 << 20 // minutes at the lower rate
	w, socket, reload := limitedWorld(t, "limits: {caller: {streams: 2}, cluster: {bytesOutPerSecond: 64KiB, dialsPerSecond: 200}}\n")
	to := echo(t)
	live := connectThrough(t, socket, to)
	bulk := connectThrough(t, socket, target(t, func(c *net.TCPConn) { io.CopyN(c, zeros{}, most) }))
	done := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, bulk)
		done <- n
	}()
	answer := refusedConnect(t, socket, to)
	for _, say := range []string{"HTTP/1.1 429 limit_reached: caller unix:c1/connect may have 2 streams", "\r\nTombolo-Fault: limit_reached\r\n", "raise limits.caller.streams"} {
		if !strings.Contains(answer, say) {
			t.Errorf("%q is not in the answer %q", say, answer)
		}
	}
	runtest.Eventually(t, "status shows who waits", func() bool {
		out := must(t, "status", "c1")
		return strings.Contains(out, "cluster.bytesOutPerSecond") && strings.Contains(out, "caller.streams (unix:c1/connect)")
	})
	if out := must(t, "status"); !strings.Contains(out, "limits have held up cluster c1") {
		t.Errorf("the overview says\n%s", out)
	}
	select {
	case n := <-done:
		t.Fatalf("%d bytes came through at the lower rate", n)
	default:
	}
	reload("limits: {caller: {streams: 3}, cluster: {bytesOutPerSecond: 4GiB, dialsPerSecond: none}}\n")
	if n := <-done; n != most {
		t.Errorf("%d bytes of %d at the raised rate", n, most)
	}
	says(t, live, "the other stream")
	says(t, connectThrough(t, socket, to), "another one")
	w.hub.Says(t, "configuration loaded")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A hub that comes to its limit of memory cuts streams of the cluster that uses the
// most, and no other.
func TestMemoryOfARunningHub(t *testing.T) {
	w, socket, _ := limitedWorld(t, "limits: {memory: 64MiB}\n")
	neighbour := &world{dir: filepath.Join(w.dir, "c2"), health: runtest.Address(8445), cluster: "c2"}
	neighbour.join = strings.TrimSpace(strings.TrimPrefix(must(t, "token", "create", "--cluster", "c2"), "tombolo agent --join "))
	neighbour.runAgent(t)
	other := connectThrough(t, filepath.Join(w.dir, "run/clusters/c2/connect.sock"), echo(t))

	const streams = 300
	flood := target(t, func(c *net.TCPConn) {
		if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
			io.Copy(c, zeros{})
		}
	})
	var callers []net.Conn
	for range streams {
		callers = append(callers, connectThrough(t, socket, flood))
	}
	for _, c := range callers { // who ask, and do not read
		c.Write([]byte{0})
	}
	w.hub.Says(t, "streams cut: the hub is short of memory")
	says(t, other, "the neighbour's stream lives on")
	says(t, connectThrough(t, filepath.Join(w.dir, "run/clusters/c2/connect.sock"), echo(t)), "and it gets another")
	_, text := probe(t, "https://"+strings.TrimSuffix(w.listen, "8443")+"8444/metrics")
	if !strings.Contains(text, `tombolo_hub_stream_ends_total{code="limit_reached"}`) || !strings.Contains(text, "tombolo_hub_memory_limit_bytes 6.7108864e+07") {
		t.Error("the metrics do not tell")
	}
	out := must(t, "status", "c1")
	if !strings.Contains(out, "memory ") || !strings.Contains(out, " of 67.1MB") {
		t.Errorf("status says\n%s", out)
	}
	for _, c := range callers {
		c.Close()
	}
	runtest.Eventually(t, "the cluster is served again", func() bool {
		return strings.HasPrefix(refusedConnect(t, socket, flood), "HTTP/1.1 200")
	})
}
