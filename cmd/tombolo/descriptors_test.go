// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// fewDescriptors is what the hub of this test may have; more than twice as many
// connections come.
const fewDescriptors = 128

// limited makes a process start with a bound on its descriptors, which the
// program cannot raise again.
func limited(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, fewDescriptors)}, cmd.Args...)
	cmd.Path = "/bin/sh"
}

// A hub whose descriptors are taken up by callers is still governed
// and still alive for its probes, keeps what it serves, and takes callers again
// when there is room.
func TestHubOutOfDescriptors(t *testing.T) {
	w := startHubWith(t, limited)
	w.join = strings.TrimSpace(strings.TrimPrefix(must(t, "token", "create", "--cluster", "c1"), "tombolo agent --join "))
	w.health = runtest.Address(8445)
	w.agent = w.runAgent(t)
	must(t, "egress-config", "c1", "--mode", "connect-uds")
	must(t, "egress-config", "c1", "--mode", "grpc-uds")
	sockets, to := filepath.Join(w.dir, "run/clusters/c1"), echo(t)
	live := connectThrough(t, filepath.Join(sockets, "connect.sock"), to)
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // a frame of HTTP/2 without any
	for _, c := range []callers{                            // no bound of time ends them
		{filepath.Join(sockets, "connect.sock"), fmt.Sprintf("CONNECT %s HTTP/1.1\r\n\r\n", to), func(head string) bool { return head == "HTTP/1.1 200" }},
		{filepath.Join(sockets, "konnectivity.sock"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings, func(head string) bool { return head[3] == settings[3] }},
	} {
		t.Run(filepath.Base(c.path), func(t *testing.T) { c.flood(t, w, live) })
	}
}

// callers are those of a socket: what they say, and how an answer to it begins.
type callers struct {
	path, hello string
	served      func(head string) bool
}

func (c callers) flood(t *testing.T, w *world, live net.Conn) {
	said := strings.Count(w.hub.Err.String(), "no descriptor left")
	var flood []net.Conn
	drop := func() {
		for _, conn := range flood {
			conn.Close()
		}
		flood = nil
	}
	defer drop()
	for range 2 * fewDescriptors {
		conn, err := net.Dial("unix", c.path)
		if err != nil {
			break // the queue of a hub that accepts nothing is full, too
		}
		flood = append(flood, conn)
		io.WriteString(conn, c.hello)
	}
	runtest.Eventually(t, "the hub says that it has no descriptor left", func() bool {
		return strings.Count(w.hub.Err.String(), "no descriptor left") > said
	})
	admin := "https://" + strings.TrimSuffix(w.listen, "8443") + "8444"
	for range 3 { // each time on a connection of its own
		if status, body := probe(t, admin+"/livez"); status != http.StatusOK {
			t.Errorf("/livez answers %d %s", status, body)
		}
		if status, body := probe(t, admin+"/metrics"); status != http.StatusOK || !strings.Contains(body, "tombolo_hub_sessions") {
			t.Errorf("/metrics answers %d", status)
		}
		if out := must(t, "status"); !strings.Contains(out, "c1") {
			t.Errorf("status says %q", out)
		}
	}
	says(t, live, "while all descriptors are taken")

	drop()
	runtest.Eventually(t, "callers are taken again", func() bool {
		conn, err := net.Dial("unix", c.path)
		if err != nil {
			return false
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Second))
		io.WriteString(conn, c.hello)
		head := make([]byte, 12)
		_, err = io.ReadFull(conn, head)
		return err == nil && c.served(string(head))
	})
	says(t, live, "afterwards")
}

// An agent whose descriptors are taken up by targets says so, is still alive for
// its probes, keeps what it carries, and dials again when there is room. So it is
// with a flood on its health port.
func TestAgentOutOfDescriptors(t *testing.T) {
	w := startHub(t)
	w.join = strings.TrimSpace(strings.TrimPrefix(must(t, "token", "create", "--cluster", "c1"), "tombolo agent --join "))
	w.health = runtest.Address(8445)
	cmd := exec.Command(os.Args[0], "agent", "--join", w.join, "--state-dir", filepath.Join(w.dir, "agent"), "--allow", "127.0.0.0/8", "--health-listen", w.health)
	limited(cmd)
	begun := time.Now()
	w.agent = startCommand(t, cmd)
	w.agent.Says(t, "connected")
	w.attended(t, begun)
	must(t, "egress-config", "c1", "--mode", "connect-uds")
	path, to := filepath.Join(w.dir, "run/clusters/c1/connect.sock"), echo(t)
	live := connectThrough(t, path, to)

	var held []net.Conn
	drop := func() {
		for _, c := range held {
			c.Close()
		}
		held = nil
	}
	defer drop()
	refused := 0
	for range 2 * fewDescriptors {
		c, answer := connectAnswer(t, path, to)
		held = append(held, c)
		if !strings.HasPrefix(answer, "HTTP/1.1 200") {
			if refused++; !strings.Contains(answer, "limit_reached") {
				t.Fatalf("refused with %q", answer)
			}
		}
	}
	if refused < fewDescriptors {
		t.Errorf("%d of %d dials are refused: the agent has %d descriptors", refused, 2*fewDescriptors, fewDescriptors)
	}
	flood := func() {
		for range 2 * fewDescriptors {
			c, err := (&net.Dialer{Timeout: runtest.Patience}).Dial("tcp", w.health)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
	}
	for _, more := range []func(){func() {}, flood} {
		more()
		if status, body := probe(t, "http://"+w.health+"/readyz"); status != http.StatusOK {
			t.Errorf("/readyz answers %d %s", status, body)
		}
		says(t, live, "while all descriptors are taken")
	}
	drop()
	runtest.Eventually(t, "targets are dialled again", func() bool {
		c, answer := connectAnswer(t, path, to)
		c.Close()
		return strings.HasPrefix(answer, "HTTP/1.1 200")
	})
	says(t, live, "afterwards")
}

// connectAnswer dials with CONNECT and gives the head of the answer.
func connectAnswer(t *testing.T, path, to string) (net.Conn, string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(runtest.Patience))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", to)
	var head []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, one...) {
		if _, err := io.ReadFull(c, one); err != nil {
			t.Fatalf("CONNECT is answered with %q, %v", head, err)
		}
	}
	return c, string(head)
}

// connectThrough opens a connection with CONNECT.
func connectThrough(t *testing.T, path, to string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(runtest.Patience))
	const ok = "HTTP/1.1 200 Connection Established\r\n\r\n"
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", to)
	head := make([]byte, len(ok))
	if _, err := io.ReadFull(c, head); err != nil || string(head) != ok {
		t.Fatalf("CONNECT is answered with %q, %v", head, err)
	}
	return c
}

// says wants an echo.
func says(t *testing.T, c net.Conn, text string) {
	t.Helper()
	back := make([]byte, len(text))
	io.WriteString(c, text)
	if _, err := io.ReadFull(c, back); err != nil || string(back) != text {
		t.Errorf("%q came back as %q, %v", text, back, err)
	}
}

func probe(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: runtest.Patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// startHubWith is startHub with a change to how the process starts.
func startHubWith(t *testing.T, change func(*exec.Cmd)) *world {
	t.Helper()
	w := &world{dir: runtest.Dir(t), listen: runtest.Address(8443), cluster: "c1"}
	cmd := exec.Command(os.Args[0], "hub", "--state-dir", filepath.Join(w.dir, "hub"), "--run-dir", filepath.Join(w.dir, "run"),
		"--listen", w.listen, "--admin-listen", strings.TrimSuffix(w.listen, "8443")+"8444", "--advertise", w.listen)
	change(cmd)
	w.hub = startCommand(t, cmd)
	w.hub.Says(t, "hub is ready")
	t.Setenv("TOMBOLO_ADMIN_SOCKET", filepath.Join(w.dir, "run/admin/hub.sock"))
	return w
}
