// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// A flood on the admin port costs the oldest of its own connections their place,
// and nothing else.
func TestFloodOfTheAdminPort(t *testing.T) {
	w := startHubWith(t, limited)
	address := strings.TrimSuffix(w.listen, "8443") + "8444"
	for range 4 * fewDescriptors {
		c, err := (&net.Dialer{Timeout: runtest.Patience}).Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if status, body := probe(t, "https://"+address+"/readyz"); status != http.StatusOK {
		t.Errorf("/readyz answers %d %s", status, body)
	}
	must(t, "token", "create", "--cluster", "c1")
}

// TestProbesDuringAFloodOfTheAdminPort: connections come as fast as they can, and are
// held: silent ones, some that say half a word, some that shake hands and ask nothing.
// Probes are answered in their time. One that the machine kept for 100 ms looks like the
// flood and may be shed, so it is asked again, as kubelet does. That this process was
// late, beside its own flood, says nothing of the hub: such a failure does not count.
func TestProbesDuringAFloodOfTheAdminPort(t *testing.T) {
	w := startHubWith(t, limited)
	address := strings.TrimSuffix(w.listen, "8443") + "8444"
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	var came atomic.Int64
	for i := range 8 {
		flood.Go(func() { floodWith(ctx, address, i, &came) })
	}
	defer flood.Wait()
	defer stop()
	runtest.Eventually(t, "the flood is there", func() bool { return came.Load() > 8*fewDescriptors })
	const probes, tries = 30, 3
	var longest time.Duration
	again, late := 0, 0
	for i := range probes {
		path := []string{"livez", "readyz", "metrics"}[i%3]
		begun, failures := time.Now(), 0
		for {
			kept, err := ask(address, path)
			if err == nil {
				break
			}
			if kept > limit.SilentLeast-tick && time.Since(begun) < runtest.Patience {
				late++
			} else if failures++; failures == tries {
				t.Fatalf("probe %d of /%s: %v, for the %dth time", i, path, err, tries)
			}
		}
		if failures > 0 {
			again++
		}
		longest = max(longest, time.Since(begun))
	}
	if again > probes/4 {
		t.Errorf("%d of %d probes had to be asked again", again, probes)
	}
	t.Logf("%d connections came; the slowest probe took %v, %d were asked again, and %d times the client was late",
		came.Load(), longest, again, late)
}

// ask makes a probe on a connection of its own, and says how long the server had to wait
// for its client at most.
func ask(address, path string) (kept time.Duration, err error) {
	ends := time.Now().Add(10 * time.Second) // Prometheus's own
	conn, err := (&net.Dialer{Deadline: ends}).Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	conn.SetDeadline(ends)
	c := &punctual{TCPConn: conn.(*net.TCPConn)}
	over := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	req, err := http.NewRequest(http.MethodGet, "https://"+address+"/"+path, nil)
	if err != nil {
		return 0, err
	}
	req.Close = true
	if err := req.Write(over); err != nil {
		return c.kept, err
	}
	res, err := http.ReadResponse(bufio.NewReader(over), req)
	if err != nil {
		return c.kept, err
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err == nil && (res.StatusCode != http.StatusOK || len(body) == 0) {
		err = fmt.Errorf("%s, %d bytes", res.Status, len(body))
	}
	return c.kept, err
}

// punctual is a connection that notes how long its peer had to wait at most: from what
// the kernel last got of it, or the last that it was sent, to the next Write.
type punctual struct {
	*net.TCPConn
	kept time.Duration
}

// tick is how exact the kernel's times are.
const tick = 10 * time.Millisecond

func (c *punctual) Write(b []byte) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := errors.Join(failed, err); err != nil {
		return 0, err
	}
	c.kept = max(c.kept, time.Duration(min(info.Last_data_recv, info.Last_data_sent))*time.Millisecond)
	return c.TCPConn.Write(b)
}

// floodWith opens connections and holds the newest.
func floodWith(ctx context.Context, address string, kind int, came *atomic.Int64) {
	held := make([]net.Conn, 256)
	defer func() {
		for _, c := range held {
			if c != nil {
				c.Close()
			}
		}
	}()
	for n := 0; ctx.Err() == nil; n++ {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			continue
		}
		came.Add(1)
		if kind == 0 && n%64 == 0 {
			c.Write([]byte{22, 3})
		}
		if kind == 1 && n%64 == 0 {
			shaken := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			shaken.SetDeadline(time.Now().Add(time.Second))
			if shaken.HandshakeContext(ctx) == nil {
				c = shaken
			}
		}
		if old := held[n%len(held)]; old != nil {
			old.Close()
		}
		held[n%len(held)] = c
	}
}
