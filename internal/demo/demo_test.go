// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestScreen(t *testing.T) {
	outcome := func() (string, error) { return "one two three\nfour", nil }
	failure := func() (string, error) { return "", errors.New("it broke\nbadly") }
	for _, c := range []struct {
		name   string
		screen Screen
		do     func() (string, error)
		want   string
	}{
		{"plain", Screen{}, outcome, "  ok name                      0.00 s  one two three\n" + strings.Repeat(" ", 39) + "four\n"},
		{"plain failure", Screen{}, failure, "FAIL name                      0.00 s  it broke\n"},
		{"live", Screen{Live: true}, outcome, "   … name\r\x1b[K   ✓ name                      0.00 s  one two three\n" + strings.Repeat(" ", 39) + "four\n"},
		{"narrow", Screen{Width: 16}, outcome, "  ok name                      0.00 s\n       one two\n         three\n       four\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			c.screen.Out = &out
			_ = c.screen.step("name", c.do)
			if got := out.String(); got != c.want {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
		})
	}
}

func TestScreenPaintsOnlyInColour(t *testing.T) {
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		s := Screen{Out: &out, Live: true, Color: color}
		s.title("title", "body")
		_ = s.step("name", func() (string, error) { return "", nil })
		if got := strings.Contains(out.String(), "\x1b[3") || strings.Contains(out.String(), bold); got != color {
			t.Errorf("colour %v: painted %v", color, got)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestScreenRemembersThatNobodyWatches(t *testing.T) {
	s := Screen{Out: brokenPipe{}}
	s.line("first")
	if s.failed == nil || !strings.Contains(s.failed.Error(), "broken pipe") {
		t.Errorf("failed is %v", s.failed)
	}
}

func TestSocketOf(t *testing.T) {
	const config = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: etcd
  connection: {proxyProtocol: Direct}
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: /run/tombolo/clusters/c1/connect.sock}}
`
	got, err := socketOf(config)
	if want := "/run/tombolo/clusters/c1/connect.sock"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"", "\t", strings.Replace(config, "name: cluster", "name: other", 1)} {
		if got, err := socketOf(bad); err == nil {
			t.Errorf("%q: got %q, want an error", bad, got)
		}
	}
}

// hubThatSays answers every CONNECT with the bytes.
func hubThatSays(t *testing.T, answer string) dialer {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		reader := bufio.NewReader(conn)
		if _, err := http.ReadRequest(reader); err != nil {
			return
		}
		fmt.Fprint(conn, answer)
		_, _ = reader.ReadByte() // until the client hangs up
	}()
	return throughHub(socket)
}

func TestThroughHub(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := hubThatSays(t, "HTTP/1.1 200 OK\r\n\r\n")(ctx, "10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()

	_, err = hubThatSays(t, "HTTP/1.1 403 Forbidden\r\nTombolo-Fault: policy_denied\r\nContent-Length: 3\r\n\r\nwhy")(ctx, "10.0.0.1:80")
	r := refused(err)
	if r == nil || r.code != "policy_denied" || r.reason != "why" || r.status != 403 {
		t.Errorf("refusal %+v of %v", r, err)
	}

	if _, err := hubThatSays(t, "HTTP/1.1 200 OK\r\n\r\nearly")(ctx, "10.0.0.1:80"); err == nil {
		t.Error("bytes in the same write as the 200 were accepted")
	}

	short, cancelShort := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancelShort()
	if _, err := hubThatSays(t, "")(short, "10.0.0.1:80"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a hub that does not answer: %v, want the context's error", err)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if err := askConnect(short, near, "10.0.0.1:80"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a hub that does not read: %v, want the context's error", err)
	}
}
