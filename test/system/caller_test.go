// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestWhoTheCallerIs: the socket says the egress type, the kernel says the user.
// A rule about either refuses everybody of whom it is not known.
func TestWhoTheCallerIs(t *testing.T) {
	byEgress, byUser, byOther := runtest.Echo(t), runtest.Echo(t), runtest.Echo(t)
	f := policyFolder(t)
	f.put("c1.yaml", fmt.Sprintf(`
- {name: etcd, egress: [etcd], allow: [%q]}
- {name: me, uids: [%d], egress: [cluster], allow: [%q]}
- {name: other, uids: [%d], allow: [%q]}
`, byEgress.Addr(), os.Getuid(), byUser.Addr(), os.Getuid()+1, byOther.Addr()))
	clusters := "clusters:\n- name: c1\n  sockets: [{protocol: connect}, {protocol: connect, egress: etcd}]\n"
	h, _ := pair(t, hubSpec{extra: f.extra() + clusters}, agentSpec{allow: []string{"127.0.0.0/8"}})
	etcd := filepath.Join(h.cfg.RunDir, "clusters/c1/connect-etcd.sock")
	ways := map[string]way{}
	for _, w := range h.ways("c1") {
		ways[w.name] = w
	}
	for _, c := range []struct {
		way    string
		target *runtest.Target
		name   string
		allow  bool
	}{
		{"connect-unix", byUser, "the user", true},
		{"konnectivity", byUser, "the user", true},
		{"connect-tls", byUser, "the user", false}, // nobody knows a user
		{"connect-unix", byOther, "another user", false},
		{"konnectivity", byOther, "another user", false},
		{"connect-tls", byOther, "another user", false},
		{"connect-unix", byEgress, "another egress type", false},
		{"konnectivity", byEgress, "another egress type", false},
	} {
		conn, err := ways[c.way].dial(runtest.Within(t), c.target.Addr())
		check(t, c.way+", "+c.name, conn, err, c.allow)
	}
	conn, err := dialConnect(runtest.Within(t), etcd, byEgress.Addr())
	check(t, "the socket for etcd", conn, err, true)
	conn, err = dialConnect(runtest.Within(t), etcd, byUser.Addr())
	check(t, "the socket for etcd, a rule for another", conn, err, false)
	for _, s := range []*runtest.Target{byOther} {
		if n := s.Accepted(); n != 0 {
			t.Errorf("a refused destination saw %d connections", n)
		}
	}
}

func check(t *testing.T, what string, conn net.Conn, err error, allow bool) {
	t.Helper()
	if (err == nil) != allow {
		t.Errorf("%s: %v, want allowed=%v", what, err, allow)
	}
	if err == nil {
		mustEcho(t, conn, what)
		conn.Close()
	}
}
