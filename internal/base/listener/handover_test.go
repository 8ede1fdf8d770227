// SPDX-License-Identifier: Apache-2.0

package listener_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// between gives both ends of a unix socket.
func between(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(runtest.Dir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{dialled, accepted} {
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(runtest.Patience))
	}
	return dialled.(*net.UnixConn), accepted.(*net.UnixConn)
}

func TestPortsAreHandedOver(t *testing.T) {
	a, b := between(t)
	var ports []listener.Port
	for _, name := range []string{"one", "two"} {
		ln, err := listener.Listen(t.Context(), "x", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, listener.Port{Name: name, Address: strings.Repeat(name, 500), Listener: ln})
	}
	waiting, err := net.Dial("tcp", ports[1].Listener.Addr().String()) // in the queue before and after
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if err := listener.SendPorts(a, ports); err != nil {
		t.Fatal(err)
	}
	got, err := listener.ReceivePorts(b)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	for i, p := range got {
		if p.Name != ports[i].Name || p.Address != ports[i].Address || p.Listener.Addr().String() != ports[i].Listener.Addr().String() {
			t.Errorf("%+v, want %+v", p, ports[i])
		}
	}
	listener.ClosePorts(ports)
	c, err := got[1].Listener.Accept()
	if err != nil || c.RemoteAddr().String() != waiting.LocalAddr().String() {
		t.Fatal(c, err)
	}
	c.Close()
	if err := listener.SendPorts(a, got); err != nil { // once more, as at the next restart
		t.Fatal(err)
	}
	again, err := listener.ReceivePorts(b)
	if err != nil {
		t.Fatal(err)
	}
	listener.ClosePorts(again)
	listener.ClosePorts(got)
}

func TestPortsThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"no descriptor": `[{"name":"a","address":":1"}]` + "\n", "no JSON": "?\n", "too long": strings.Repeat("x", 70<<10), "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			a, b := between(t)
			go func() {
				a.Write([]byte(text))
				a.CloseWrite()
			}()
			if ports, err := listener.ReceivePorts(b); err == nil || ports != nil {
				t.Errorf("%v, %v", ports, err)
			}
		})
	}
	a, _ := between(t)
	if err := listener.SendPorts(a, make([]listener.Port, 300)); err == nil || !strings.Contains(err.Error(), "one message") {
		t.Error(err)
	}
	if err := listener.SendPorts(a, []listener.Port{{Listener: listener.NewHandoff(nil)}}); err == nil {
		t.Error("a port without a descriptor was sent")
	}
}
