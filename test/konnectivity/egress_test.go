// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/client/egress"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestEgressLibrary dials with client/egress through the reference's server, and through ours, in every way that a
// configuration can say.
func TestEgressLibrary(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]startServer{"their server": (*world).theirs, "our server": (*world).ours} {
		for _, mode := range []string{"grpc", "http-connect"} {
			for _, tcp := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, tcp %v", name, mode, tcp), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t)
					p := start(w, mode, tcp)
					theirAgent(w, p.agentPort)
					p.ready()
					p.library()
				})
			}
		}
	}
}

// library dials with client/egress.
func (p *proxy) library() {
	w := p.w
	w.Helper()
	text := p.egressConfig()
	if p.mode == "grpc" && p.socket == "" { // which the shipped form does not have
		text = fmt.Sprintf("apiVersion: apiserver.k8s.io/v1alpha1\nkind: EgressSelectorConfiguration\negressSelections:\n"+
			"- name: cluster\n  connection: {type: grpc, url: \"grpc://127.0.0.1:%d\", caBundle: %q, clientCertFile: %q, "+
			"clientKeyFile: %q}\n", p.serverPort, w.file("ca.crt"), w.file("client.crt"), w.file("client.key"))
	}
	file := w.file("egress.yaml")
	w.must(os.WriteFile(file, []byte(text), 0o600))
	selector, err := egress.Load(file)
	w.must(err)
	dialer, err := selector.Dialer("Cluster")
	w.must(err)
	dial := func(address string) (net.Conn, error) {
		conn, err := dialer.DialContext(runtest.Within(w), "tcp", address)
		if err == nil {
			w.Cleanup(func() { conn.Close() })
		}
		return conn, err
	}
	echo := runtest.Echo(w)
	for range 3 {
		conn, err := dial(echo.Addr())
		w.must(err)
		echoes(w, conn, 300_000)
		conn.Close()
	}
	goodbye := runtest.Serve(w, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 5))
		io.WriteString(c, "bye")
		c.Close()
	})
	conn, err := dial(goodbye.Addr())
	w.must(err)
	_, err = io.WriteString(conn, "hello")
	w.must(err)
	if said, err := io.ReadAll(conn); string(said) != "bye" || err != nil {
		w.Errorf("a target said %q and ended with %v", said, err)
	}
	quiet, err := dial(echo.Addr())
	w.must(err)
	w.must(quiet.SetReadDeadline(time.Now().Add(-time.Second)))
	if _, err := quiet.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		w.Errorf("after its deadline a read gave %v", err)
	}
	var refused *client.Error
	if _, err := dial(fmt.Sprintf("127.0.0.1:%d", w.ports(1)[0])); !errors.As(err, &refused) {
		w.Errorf("a dial to nobody gave %v", err)
	}
}
