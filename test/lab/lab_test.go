// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(abandonEnv) != "" {
		abandon()
	}
	// The tests of networks mostly wait for what must not come, so that more of
	// them than processors go on at once.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(labtest.Main(m))
}

// greeter answers every connection with its word and the address that it saw,
// then echoes.
func greeter(t *testing.T, h *lab.Host, addr, word string) {
	t.Helper()
	listener, err := h.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	go greet(listener, word)
}

func greet(listener net.Listener, word string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			fmt.Fprintf(conn, "%s %s\n", word, host)
			io.Copy(conn, conn)
		}()
	}
}

// greeting dials and returns the first line of the answer.
func greeting(h *lab.Host, addr string, within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := h.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(within))
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func packets(t testing.TB, f *lab.Filter) uint64 {
	t.Helper()
	n, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMasqueradeHidesTheSite(t *testing.T) {
	_, w := labtest.World(t, "masq", 1, 1)
	site := w.Sites[0]
	greeter(t, w.Control, lab.ControlAddr+":7000", "control")

	got, err := greeting(site.Agents[0], lab.ControlAddr+":7000", patience)
	if err != nil {
		t.Fatal(err)
	}
	if want := "control " + site.Public; got != want {
		t.Errorf("the control plane saw %q, want %q: the gateway's address, not the agent's", got, want)
	}
	if n := packets(t, site.NAT); n != 1 {
		t.Errorf("the gateway translated %d connections, want 1", n)
	}

	// The same without masquerade goes unanswered: the answer has no way back.
	if err := site.NAT.Off(); err != nil {
		t.Fatal(err)
	}
	if got, err := greeting(site.Agents[0], lab.ControlAddr+":7000", time.Second); err == nil {
		t.Errorf("without masquerade: got %q, want no answer", got)
	}
	if n := packets(t, site.NAT); n != 1 {
		t.Errorf("the count changed to %d by switching it off", n)
	}
}

func TestNobodyDialsIntoASite(t *testing.T) {
	_, w := labtest.World(t, "inward", 1, 1)
	site := w.Sites[0]
	greeter(t, site.Backend, lab.BackendAddr+":7000", "backend")
	greeter(t, site.Gateway, site.Public+":7000", "gateway")

	if got, err := greeting(site.Agents[0], lab.BackendAddr+":7000", patience); err != nil || got != "backend 10.42.0.11" {
		t.Errorf("within the site: %q, %v", got, err)
	}
	var no syscall.Errno
	_, err := greeting(w.Control, lab.BackendAddr+":7000", 2*time.Second)
	if !errors.As(err, &no) || (no != syscall.EHOSTUNREACH && no != syscall.ENETUNREACH) {
		t.Errorf("dialling the private address: %v, want no route", err)
	}
	_, err = greeting(w.Control, site.Public+":7000", time.Second)
	var silence net.Error
	if !errors.As(err, &silence) || !silence.Timeout() {
		t.Errorf("dialling the gateway: %v, want silence", err)
	}
	if packets(t, site.Firewall) == 0 {
		t.Error("the firewall counted nothing")
	}

	// With a route and an open firewall the same dial works: nothing else was
	// in the way.
	if err := errors.Join(site.Firewall.Off(), w.Internet.Route(lab.SiteRange, site.Public)); err != nil {
		t.Fatal(err)
	}
	if got, err := greeting(w.Control, lab.BackendAddr+":7000", patience); err != nil || got != "backend "+lab.ControlAddr {
		t.Errorf("with the firewall open: %q, %v", got, err)
	}
	if err := w.Internet.Unroute(lab.SiteRange, site.Public); err != nil {
		t.Fatal(err)
	}
}

func TestPartitionIsSilentAndLifts(t *testing.T) {
	_, w := labtest.World(t, "cut", 1, 1)
	site := w.Sites[0]
	greeter(t, w.Control, lab.ControlAddr+":7000", "control")
	conn, err := site.Agents[0].DialContext(t.Context(), "tcp", lab.ControlAddr+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	if _, err := reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(site.Uplink.On(), site.Uplink.On()); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(conn, "ping"); err != nil {
		t.Fatalf("the partition is not silent: %v", err)
	}
	conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := reader.ReadString('\n'); !os.IsTimeout(err) {
		t.Fatalf("reading over the partition: %v, want a timeout", err)
	}
	if packets(t, site.Uplink) == 0 {
		t.Error("the partition counted nothing")
	}

	if err := errors.Join(site.Uplink.Off(), site.Uplink.Off()); err != nil {
		t.Fatal(err)
	}
	before := packets(t, site.Uplink)
	conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // TCP resends in its own time
	if line, err := reader.ReadString('\n'); err != nil || line != "ping\n" {
		t.Fatalf("after the partition: %q, %v; want the same connection to go on", line, err)
	}
	if after := packets(t, site.Uplink); after != before {
		t.Errorf("counted %d more packets while off", after-before)
	}
}

func TestEqualRangesSideBySide(t *testing.T) {
	_, w := labtest.World(t, "equal", 2, 1)
	for i, site := range w.Sites {
		greeter(t, site.Backend, lab.BackendAddr+":7000", fmt.Sprintf("site%d", i+1))
	}
	for i, site := range w.Sites {
		got, err := greeting(site.Agents[0], lab.BackendAddr+":7000", patience)
		if want := fmt.Sprintf("site%d 10.42.0.11", i+1); err != nil || got != want {
			t.Errorf("site %d: %q, %v; want %q", i+1, got, err, want)
		}
	}
}

func TestTwoLabsAtOnce(t *testing.T) {
	l1, w1 := labtest.World(t, "same", 1, 1)
	_, w2 := labtest.World(t, "same", 1, 1)
	greeter(t, w1.Sites[0].Backend, lab.BackendAddr+":7000", "one")
	greeter(t, w2.Sites[0].Backend, lab.BackendAddr+":7000", "two")
	if err := l1.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Sweep(); err != nil {
		t.Fatal(err)
	}
	got, err := greeting(w2.Sites[0].Agents[0], lab.BackendAddr+":7000", patience)
	if err != nil || got != "two 10.42.0.11" {
		t.Errorf("the second lab after the first was closed: %q, %v", got, err)
	}
}

func TestNothingInTheRootNamespace(t *testing.T) {
	l, w := labtest.World(t, "root", 2, 2)
	for _, name := range []string{"wan", "control", "site1", "agent1", "backend"} {
		if link, err := net.InterfaceByName(name); err == nil {
			t.Errorf("%s of the lab is in the root namespace", link.Name)
		}
	}
	links, err := lab.Links(w.Sites[0].Gateway)
	if err != nil || len(links) != 4 {
		t.Errorf("gateway1 has links %q (%v), want wan, two agents and the backend", links, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	requireNothingOpen(t)
}

// requireNothingOpen fails when this process still holds a network namespace
// other than its own, by a mount or a descriptor.
func requireNothingOpen(t *testing.T) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	left, err := lab.Leftovers()
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q (%v)", left, err)
	}
	owned := fmt.Sprintf("-%s-", strconv.FormatInt(int64(os.Getpid()), 36))
	for _, line := range strings.Split(string(mounts), "\n") {
		if strings.Contains(line, "/tombolo-lab-") && strings.Contains(line, owned) {
			t.Errorf("still mounted: %s", line)
		}
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "net:[") {
			t.Errorf("still open: %s is %s", fd, to)
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	l := labtest.New(t, "close")
	h, err := l.Host("only")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := l.Dir()
	if err != nil {
		t.Fatal(err)
	}
	// The shell's child is a grandchild of ours, in the same group.
	p, err := h.Start(exec.Command("/bin/sh", "-c", "sleep 1000 & echo $! >"+dir+"/pid; mv "+dir+"/pid "+dir+"/child; wait"))
	if err != nil {
		t.Fatal(err)
	}
	child := waitForFile(t, filepath.Join(dir, "child"))
	listener, err := h.Listen("tcp", "127.0.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) {
		t.Errorf("the process ended with %v, want killed", err)
	}
	requireGone(t, child)
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener says %v, want closed", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
	if _, err := l.Host("late"); err == nil {
		t.Error("a closed lab gave a host")
	}
	requireNothingOpen(t)
}

// waitForFile returns the content of a file as soon as it exists.
func waitForFile(t *testing.T, path string) string {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if content, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(content))
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s did not appear", path)
	return ""
}

// requireGone waits until a process has ended (or is a zombie that its reaper
// has not yet met).
func requireGone(t *testing.T, pid string) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %s still runs", pid)
}
