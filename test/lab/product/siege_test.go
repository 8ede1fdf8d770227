// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

const (
	silentOnes = 15_000
	halfOpen   = 100_000
	// mostPlaces is how many connections of a port may say nothing: an edge of 20,000 descriptors holds so many.
	mostPlaces = 4096
	// mostMemory is what the edge may hold at its peak: about 100 MiB are usual.
	mostMemory = 192 << 20
)

// TestSiege: an edge from which thousands of connections want nothing, and at whose port a hundred thousand never
// begin, lets in who says what they want. A live tunnel notices nothing.
func TestSiege(t *testing.T) {
	t.Parallel()
	l := labtest.New(t, "siege")
	front, wild := hostOf(t, l, "edge"), hostOf(t, l, "wild")
	run := func(h *lab.Host, line ...string) {
		t.Helper()
		if err := h.Run(t.Context(), exec.Command(line[0], line[1:]...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Link(lab.End{Host: wild, Name: "eth0", Addr: "10.99.0.1"}, lab.End{Host: front, Name: "eth0", Addr: "10.99.0.2"}),
		front.Route("10.64.0.0/10", "10.99.0.1")); err != nil {
		t.Fatal(err)
	}
	run(wild, "ip", "route", "add", "local", "10.77.0.0/16", "dev", "lo") // it has every address of them
	dir, err := l.Dir()
	if err != nil {
		t.Fatal(err)
	}
	records := filepath.Join(dir, "audit.jsonl")
	for name, text := range map[string]string{
		"edge.yaml": "kind: EdgeConfig\nhealthListen: 127.0.0.1:8447\nlisteners: [{name: tls, listen: '10.99.0.2:443', protocol: tls}]\n" +
			"tenants: [" + dir + "/c1.yaml]\naudit: {path: " + records + "}\nrunDir: " + dir + "/run\ndrainTimeout: 1s\n",
		"c1.yaml": "kind: EdgeTenant\nmetadata: {name: c1}\nspec:\n  ways: [{flow: api, names: [api.c1.example.org], upstreams: ['127.0.0.1:7443']}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("apiVersion: tombolo.dev/v1alpha1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	echoTLS(t, front, "127.0.0.1:7443")
	edge := labtest.Start(t, front, filepath.Join(dir, "edge.log"), nil, labtest.Program(t), "edge", "--config", filepath.Join(dir, "edge.yaml"))
	labtest.Eventually(t, "the edge is ready", startWithin, edge, func() error { return labtest.Ready(front, "http://127.0.0.1:8447/readyz", nil) })
	first := enter(t, wild)

	var fds []int
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	for range 2 {
		fds = append(fds, beSilent(t, wild, len(fds), silentOnes/2)...)
		enter(t, wild).Close()
	}
	labtest.Eventually(t, "the silent ones lose their places", startWithin, edge, func() error {
		if n := ended(fds); n < silentOnes-mostPlaces {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	cookies := syncookies(t, front)
	flooded := make(chan error, 1)
	go func() { flooded <- wild.Do(func() error { return synFlood(halfOpen) }) }()
	enter(t, wild).Close() // in the middle of it
	if err := <-flooded; err != nil {
		t.Fatal(err)
	}
	enter(t, wild).Close()
	if n := syncookies(t, front) - cookies; n < halfOpen/10 {
		t.Errorf("the queue of half-open connections was full for %d SYNs alone", n)
	}
	says(t, first)
	if used := peak(t, edge.Pid()); used > mostMemory {
		t.Errorf("the edge held %d MiB", used>>20)
	} else {
		t.Logf("the edge held %d MiB at its peak", used>>20)
	}
	first.Close()
	if err := edge.Stop(30 * time.Second); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(records)
	if err != nil {
		t.Fatal(err)
	}
	shed, let := 0, 0
	for in := audit.NewReader(records, bytes.NewReader(data)); ; {
		rec, err := in.Next()
		if err == io.EOF {
			break
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case rec.Code == "limit_reached", rec.Code == "request_malformed": // the latter where its time was over first
			shed += int(max(rec.Count, 1))
		case rec.Cluster == "c1" && rec.Kind == audit.KindDial:
			let++
		}
	}
	if shed < silentOnes-mostPlaces || let != 5 {
		t.Errorf("records tell of %d that were refused and %d that were let in", shed, let)
	}
}

func hostOf(t *testing.T, l *lab.Lab, name string) *lab.Host {
	t.Helper()
	h, err := l.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// echoTLS is the API server of this scene.
func echoTLS(t *testing.T, h *lab.Host, addr string) {
	t.Helper()
	ln, err := h.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	secure := tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{runtest.Certificate(t)}})
	go func() {
		for {
			conn, err := secure.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// enter opens a tunnel as a good client does.
func enter(t *testing.T, h *lab.Host) *tls.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	raw, err := h.DialContext(ctx, "tcp", "10.99.0.2:443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	conn := tls.Client(raw, &tls.Config{ServerName: "api.c1.example.org", InsecureSkipVerify: true})
	says(t, conn)
	return conn
}

// says wants an echo. The time for it begins now: a tunnel lives through the whole siege.
func says(t *testing.T, conn *tls.Conn) {
	t.Helper()
	got := make([]byte, 5)
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
}

// beSilent opens connections that say nothing, few from each address.
func beSilent(t *testing.T, h *lab.Host, begun, n int) (fds []int) {
	t.Helper()
	err := h.Do(func() error {
		for i := begun; i < begun+n; i++ {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
			from := &unix.SockaddrInet4{Addr: [4]byte{10, 77, byte(i / 250), byte(1 + i%250)}}
			if err := errors.Join(unix.Bind(fd, from), unix.Connect(fd, &unix.SockaddrInet4{Port: 443, Addr: [4]byte{10, 99, 0, 2}})); err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return fds
}

// ended counts the connections that the edge has ended.
func ended(fds []int) (n int) {
	for _, fd := range fds {
		if _, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK); err != unix.EAGAIN {
			n++
		}
	}
	return n
}

// synFlood sends SYNs from addresses that nobody has.
func synFlood(n int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Addr: [4]byte{10, 99, 0, 2}}
	for i := range n {
		if err := unix.Sendto(fd, syn(uint32(i), to.Addr), 0, to); err != nil && err != unix.ENOBUFS {
			return err
		}
	}
	return nil
}

// syn is an IPv4 packet (RFC 791) with the SYN of a client (RFC 9293), each of another address.
func syn(i uint32, to [4]byte) []byte {
	b := make([]byte, 40)
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(b[2:], 40)
	binary.BigEndian.PutUint32(b[12:], 10<<24|80<<16+i)
	copy(b[16:], to[:])
	tcp := b[20:]
	binary.BigEndian.PutUint16(tcp, uint16(1024+i%60_000))
	binary.BigEndian.PutUint16(tcp[2:], 443)
	binary.BigEndian.PutUint32(tcp[4:], i)
	tcp[12], tcp[13] = 5<<4, 2
	binary.BigEndian.PutUint16(tcp[14:], 64240)
	sum := uint32(unix.IPPROTO_TCP + 20)
	for j := 12; j < 40; j += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[j:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
	return b
}

// syncookies is how many SYNs were answered without being kept.
func syncookies(t *testing.T, h *lab.Host) (n int) {
	t.Helper()
	err := h.Do(func() error {
		data, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		lines := bytes.Split(data, []byte("\n"))
		for i, name := range bytes.Fields(lines[0]) {
			if string(name) == "SyncookiesSent" {
				n, err = strconv.Atoi(string(bytes.Fields(lines[1])[i]))
				return err
			}
		}
		return errors.New("the kernel does not count its cookies")
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// peak is the largest memory that a process has had (proc_pid_status(5), VmHWM).
func peak(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(data)
	if found == nil {
		t.Fatal("the kernel does not say what memory the edge has")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
