// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// echoes answers each datagram with the cluster's name and itself.
func (r *routeRig) echoes(h *lab.Host, addr, cluster string) {
	r.t.Helper()
	conn, err := h.ListenUDP("udp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDP(buf)
			if err != nil {
				return
			}
			conn.WriteToUDP(append([]byte(cluster+" "), buf[:n]...), from)
		}
	}()
}

// datagrams reach the cluster that is meant, whole, and their answers come back; where nobody listens, the caller is
// told as on the cluster's own network.
func (r *routeRig) datagrams(t *testing.T) {
	ask := func(to string, data []byte) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), startWithin)
		defer cancel()
		conn, err := r.host.DialContext(ctx, "udp", to)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(startWithin))
		if _, err := conn.Write(data); err != nil {
			return "", err
		}
		buf := make([]byte, 1<<16)
		n, err := conn.Read(buf)
		return string(buf[:n]), err
	}
	for to, cluster := range map[string]string{"10.42.0.80": "c1", "240.2.0.80": "c2", "[" + backendAddr + "]": "c1"} {
		for _, size := range []int{0, 1, 1400, 30_000} {
			data := make([]byte, size)
			rand.Read(data)
			if got, err := ask(to+":7001", data); err != nil || got != cluster+" "+string(data) {
				t.Errorf("%s: %d bytes: %d came back of %.2s: %v", to, size, len(got), got, err)
			}
		}
		if got, err := ask(to+":7998", []byte("x")); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: nobody listens: %q, %v", to, got, err)
		}
	}
	if _, err := ask("10.43.0.1:53", []byte("x")); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("denied: %v", err)
	}
}

// pings are answered when the far end has answered, and only then.
func (r *routeRig) pings(t *testing.T) {
	for to, want := range map[string]string{
		lab.BackendAddr: "3 received", "240.2.0.80": "3 received", backendAddr: "3 received",
		"10.42.0.99": "0 received", "10.43.0.1": "Packet filtered",
	} {
		wait := "20" // it ends as soon as all have come
		if !strings.HasPrefix(want, "3 ") {
			wait = "2"
		}
		out, err := labtest.Run(r.host, 30*time.Second, nil, "ping", "-n", "-c", "3", "-i", "0.2", "-W", wait, to)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("%s: not %q: %s", to, want, out)
		}
	}
}

// resolves answers for a cluster: web has the address of the backend, many has a hundred others.
func (r *routeRig) resolves(h *lab.Host, addr string) {
	r.t.Helper()
	conn, err := h.ListenUDP("udp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := h.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	answer := func(query []byte, most int) []byte {
		var m dnsmessage.Message
		if m.Unpack(query) != nil || len(m.Questions) != 1 {
			return nil
		}
		m.Response, m.Additionals = true, nil
		name := m.Questions[0].Name
		add := func(a [4]byte) {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: a}})
		}
		switch {
		case m.Questions[0].Type != dnsmessage.TypeA:
		case name.String() == "web.default.svc.cluster.local.":
			add(netip.MustParseAddr(lab.BackendAddr).As4())
		case name.String() == "many.default.svc.cluster.local.":
			for i := range byte(100) {
				add([4]byte{10, 42, 0, i})
			}
		default:
			m.RCode = dnsmessage.RCodeNameError
		}
		text, err := m.Pack()
		if err == nil && len(text) > most {
			m.Truncated, m.Answers = true, nil
			text, err = m.Pack()
		}
		if err != nil {
			return nil
		}
		return text
	}
	go func() {
		buf := make([]byte, 1<<12)
		for {
			n, from, err := conn.ReadFromUDP(buf)
			if err != nil {
				return
			}
			conn.WriteToUDP(answer(buf[:n], 1232), from)
		}
	}()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					var head [2]byte
					if _, err := io.ReadFull(c, head[:]); err != nil {
						return
					}
					query := make([]byte, binary.BigEndian.Uint16(head[:]))
					if _, err := io.ReadFull(c, query); err != nil {
						return
					}
					text := answer(query, 1<<16)
					c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
				}
			}()
		}
	}()
}

// names of each cluster lead to it by the addresses that it has here.
func (r *routeRig) names(t *testing.T) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return r.host.DialContext(ctx, network, "192.0.0.53:53")
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, want := range map[string]string{
		"web.default.svc.cluster.local.": "10.42.0.80", "web.default.svc.c2.internal.": "240.2.0.80",
	} {
		got, err := resolver.LookupHost(ctx, name)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := resolver.LookupHost(ctx, "many.default.svc.c2.internal."); err != nil || len(got) != 100 || !strings.HasPrefix(got[0], "240.2.0.") {
		t.Errorf("by TCP: %v, %v", got, err)
	}
	for name, missing := range map[string]bool{"none.default.svc.c2.internal.": true, "example.com.": false} {
		var e *net.DNSError
		if got, err := resolver.LookupHost(ctx, name); !errors.As(err, &e) || e.IsNotFound != missing {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
