// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// logged waits until a line of the log has all of some words.
func (r *routeRig) logged(words ...string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("the log has %q", words), startWithin, nil, func() error {
		log, err := os.ReadFile(r.route.log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// noAgent: a connection into a cluster without an agent fails at once, as if there were no way to its network; the
// other cluster is as before.
func (r *routeRig) noAgent(t *testing.T) {
	if err := r.agents[1].process.Stop(startWithin); err != nil {
		t.Error(err)
	}
	r.waitConnected("c2", 0, startWithin)
	begun := time.Now()
	if conn, err := r.dial("240.2.0.80:7000"); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("without an agent: %v", err)
		if err == nil {
			conn.Close()
		}
	}
	t.Logf("it failed after %v", time.Since(begun))
	r.logged("asked=240.2.0.80:7000", "cluster=c2", "code=no_agent", "answer=no_network")
	if err := r.greets("10.42.0.80:7000", "c1"); err != nil {
		t.Error(err)
	}
	r.awaitReady() // the hub answers
}

// drains: after a SIGTERM what lives continues, what is new is refused, and when the last connection has ended so has
// the process.
func (r *routeRig) drains(t *testing.T) {
	conn, in, _, err := r.greeted("10.42.0.80:7000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := r.route.process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.eventually("it drains", startWithin, r.route, func() error {
		err := labtest.Ready(r.host, "http://127.0.0.1:8448/readyz", nil)
		if err != nil && strings.Contains(err.Error(), `"code":"draining"`) {
			return nil
		}
		return fmt.Errorf("it is ready, or not for that: %v", err)
	})
	if conn, err := r.dial("10.42.0.80:7000"); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("a new connection: %v", err)
		if err == nil {
			conn.Close()
		}
	}
	r.logged("asked=10.42.0.80:7000", "code=draining", "answer=no_network")
	for range 2 { // also after that
		if _, err := io.WriteString(conn, "still here\n"); err != nil {
			t.Error(err)
		}
		if line, err := in.ReadString('\n'); line != "still here\n" || err != nil {
			t.Errorf("what lived: %q, %v", line, err)
		}
	}
	select {
	case <-r.route.process.Done():
		t.Error("it ended with a live connection")
	default:
	}
	conn.Close()
	select { // a second signal would end it in any case
	case <-r.route.process.Done():
	case <-time.After(startWithin):
		r.route.process.Kill()
		t.Error("it does not end")
	}
	if err := r.route.process.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
