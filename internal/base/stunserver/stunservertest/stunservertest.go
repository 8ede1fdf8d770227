// SPDX-License-Identifier: Apache-2.0

// Package stunservertest is what every program with a STUN server must do with it: one
// contract, which runs over the hub and over the discovery service.
package stunservertest

import (
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// Answers holds a program to tell callers, by UDP at an address of this machine, where
// they come from. Packets may be lost: it is asked until it answers.
func Answers(t testing.TB, at string) {
	t.Helper()
	conn, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want, b := nat.ID{5}, make([]byte, 100)
	runtest.Eventually(t, "it answers", func() bool {
		if _, err := conn.Write(nat.Request(want, nat.WishNothing)); err != nil {
			return false // nobody has listened at the port so far
		}
		conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := conn.Read(b)
		if err != nil {
			return false
		}
		m, err := nat.Parse(b[:n])
		if err != nil || m.ID != want || m.Mapped.String() != conn.LocalAddr().String() {
			t.Fatalf("%+v, %v; want %v", m, err, conn.LocalAddr())
		}
		return true
	})
}
