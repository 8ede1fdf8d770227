// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"crypto/rand"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestVPNWithTwoServers: two clients hold a tunnel to each of two servers, over UDP. When a server dies, the other one
// goes on; when a client dies, its place is taken at both.
func TestVPNWithTwoServers(t *testing.T) {
	t.Parallel()
	r := newVPNRig(t, "two", 2)
	r.handshake = "tlsCrypt"
	other := r.server("seed2", otherSeedAddr)
	identity := fmt.Sprintf("identity: {bundle: %s}\nprotocol: udp\n", r.path("server.pem"))
	one := r.startServer(r.seed, "server", identity)
	two := r.startServer(other, "server2", identity+"transfer: [192.168.124.0/24]\n")
	servers := fmt.Sprintf("[{address: '%s:1194'}, {address: '%s:1194', transfer: [192.168.124.0/24]}]\nprotocol: udp", seedAddr,
		otherSeedAddr)
	first, second := r.startClient(0, servers), r.startClient(1, servers)
	for _, x := range []*role{first, second} {
		r.ready(x, 8450)
	}
	for _, x := range []*role{one, two} {
		r.ready(x, 8449)
		socket := r.path("run-server") + "/vpn-server/vpn.sock"
		if x == two {
			socket = r.path("run-server2") + "/vpn-server/vpn.sock"
		}
		r.eventually("both clients are at a server", reconnectWithin, x, func() error {
			if st := r.status(x, socket); len(st.Peers) != 2 || st.Peers[0].Answered.IsZero() || st.Peers[1].Answered.IsZero() {
				return fmt.Errorf("%+v", st.Peers)
			}
			return nil
		})
	}
	byEither := func() error {
		var all []error
		for _, server := range []string{seedAddr, otherSeedAddr} {
			err := r.connectTo(server, "apiserver.pem", lab.BackendAddr+":7000")
			if err == nil {
				return nil
			}
			all = append(all, err)
		}
		return errors.Join(all...)
	}
	for _, server := range []string{seedAddr, otherSeedAddr} {
		if err := r.connectTo(server, "apiserver.pem", lab.BackendAddr+":7000"); err != nil {
			t.Errorf("by %s: %v", server, err)
		}
	}
	junk := make([]byte, 1400)
	_, _ = rand.Read(junk)
	for range 100 { // of nobody: it has no key
		if conn, err := first.host.DialContext(t.Context(), "udp", seedAddr+":1194"); err == nil {
			_, _ = conn.Write(junk)
			conn.Close()
		}
	}
	conn, in := r.mustDial(r.seed, mapped("7000"))
	defer conn.Close()
	if err := r.echoesText(conn, in, "still here"); err != nil {
		t.Errorf("beside junk: %v", err)
	}

	one.process.Signal(syscall.SIGKILL)
	<-one.process.Done()
	took := r.eventually("the other server goes on", reconnectWithin, two, byEither)
	t.Attr("figure", fmt.Sprintf("new CONNECTs after a server's kill -9: %v", took.Round(100*time.Millisecond)))
	active := first
	for _, p := range r.status(two, r.path("run-server2")+"/vpn-server/vpn.sock").Peers {
		if p.Active && p.Name == "client-2" {
			active = second
		}
	}
	if _, err := labtest.Run(active.host, startWithin, nil, "ip", "link", "set", "eth0", "down"); err != nil {
		t.Fatal(err)
	}
	took = r.eventually("the other client takes its place", reconnectWithin, two, byEither)
	t.Attr("figure", fmt.Sprintf("new CONNECTs after a client's machine has gone, over UDP: %v", took.Round(100*time.Millisecond)))
}
