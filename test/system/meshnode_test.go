// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
)

// meshNode is a node that is attached to hubs.
type meshNode struct {
	*attach.Attach
	*process
	cfg     attach.Config
	reg     *prometheus.Registry
	log     *journal
	changes atomic.Int32

	mu     sync.Mutex
	got    []string // "source n"
	absent []string
}

func (n *meshNode) note(list *[]string, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*list = append(*list, text)
}

func (n *meshNode) seen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.got)
}

func (n *meshNode) missed() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.absent)
}

// openNode makes a node without running it.
func openNode(t *testing.T, cfg attach.Config, now func() time.Time) (*meshNode, error) {
	t.Helper()
	if cfg.StateDir == "" {
		cfg.StateDir = t.TempDir()
	}
	n := &meshNode{cfg: cfg, reg: prometheus.NewRegistry(), log: &journal{}}
	var err error
	n.Attach, err = attach.Open(cfg, attach.Options{
		Log: n.log.logger(), Reg: n.reg, Now: now,
		Changed: func() { n.changes.Add(1) },
	})
	return n, err
}

func (n *meshNode) handlers() relay.Handlers {
	return relay.Handlers{
		Receive: func(_, peer string, d []byte) { n.note(&n.got, fmt.Sprint(peer, " ", number(d))) },
		Absent:  func(_, peer string) { n.note(&n.absent, peer) },
	}
}

func startNode(t *testing.T, cfg attach.Config, now func() time.Time) *meshNode {
	t.Helper()
	n, err := openNode(t, cfg, now)
	if err != nil {
		t.Fatal(err)
	}
	n.process = start(func(soft, _ context.Context) error { return n.Run(soft, n.handlers()) })
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", cfg.Node, tail(n.log.String()))
		}
	})
	return n
}

func (n *meshNode) up(t *testing.T) *meshNode {
	t.Helper()
	runtest.Eventually(t, n.cfg.Node+" is connected to the relay", n.Ready)
	return n
}

// code is why there is no certificate, or none that counts.
func (n *meshNode) code() fault.Code {
	if f := n.Attach.Status().Fault; f != nil {
		return f.Code
	}
	return ""
}

// number is that of a datagram.
func number(d []byte) uint64 { return binary.BigEndian.Uint64(d[4:]) }

// forwardTo is another address of a server.
func forwardTo(address string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		defer c.Close()
		to, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		defer to.Close()
		var back sync.WaitGroup
		back.Go(func() {
			io.Copy(c, to)
			c.Close()
		})
		io.Copy(to, c)
		to.Close()
		back.Wait()
	}
}

// copyState gives a hub that does not run yet the CA, tokens and names of another one.
func copyState(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(from, "state"))
	if err := errors.Join(err, os.Mkdir(filepath.Join(to, "state"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(from, "state", f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, "state", f.Name()), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// reach sends from a to b until it comes.
func reach(t *testing.T, a, b *meshNode) {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	runtest.Eventually(t, fmt.Sprintf("%s reaches %s", a.cfg.Node, b.cfg.Node), func() bool {
		for _, hub := range b.Hubs() {
			a.Send(hub, b.cfg.Node, datagram(n, 0))
		}
		return slices.Contains(b.seen(), fmt.Sprint(a.cfg.Node, " ", n))
	})
}
