// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// unread is what the admin socket of a gate says about unreadBytes of a scope.
func (w *world) unread(scope string) (out admin.LimitStatus) {
	w.Helper()
	c := http.Client{Timeout: bound, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", hub.AdminSocket(w.file("run")))
		}}}
	res, err := c.Get("http://x/v1/status?cluster=c1")
	w.must(err)
	defer res.Body.Close()
	var st admin.Status
	w.must(json.NewDecoder(res.Body).Decode(&st))
	for _, l := range st.Clusters[0].Limits {
		if l.Scope == scope && l.Limit == "unreadBytes" {
			return l
		}
	}
	return out
}

// wires are our agent by each wire, and the reference's.
func wires() []fleet {
	return []fleet{{"a session", nil, ourAgent}, {"their agent", nil, theirAgent},
		{"the reference's wire", nil, func(w *world, port int, extra ...string) *agentOf {
			return ourAgent(w, port, append(extra, "--native=false")...)
		}}}
}

// unreadSize is what a target of these tests sends: less than a connection of the reference's wire may wait with.
// unreadConns are the connections on which they do: one alone leaves little unread on a session, for its window is small
// while much is unread, and sockets take some of it.
const (
	unreadSize  = 900_000
	unreadConns = 8
)

// eachWire runs fn for each wire and each way in which a caller connects that has a flow control of its own, with
// connections on which so much was sent that nobody has read.
func eachWire(t *testing.T, limits string, fn func(w *world, p *proxy, records func() string, all []io.ReadWriteCloser)) {
	for _, f := range wires() {
		for _, mode := range []string{"http-connect", "grpc"} {
			t.Run(f.name+" "+mode, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				records := w.gated("runDir: " + w.file("run") + "\nlimits: " + limits + "\n")
				p := w.ours(mode, false)
				f.agent(w, p.agentPort)
				p.ready()
				source := runtest.Serve(w, func(c *net.TCPConn) {
					defer c.Close()
					if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
						c.Write(make([]byte, unreadSize))
					}
				})
				all := make([]io.ReadWriteCloser, unreadConns)
				for i := range all {
					if mode == "http-connect" {
						all[i] = p.mustDial(source.Addr())
						continue
					}
					s, err := p.kep(source.Addr())
					w.must(err)
					all[i] = s
				}
				for _, conn := range all { // they have their windows
					_, err := conn.Write([]byte{1})
					w.must(err)
				}
				fn(w, p, records, all)
			})
		}
	}
}

// readAll reads connections to their end, and counts those on which all came.
func (w *world) readAll(all []io.ReadWriteCloser) (whole int) {
	stop := time.AfterFunc(bound, func() {
		for _, conn := range all {
			conn.Close()
		}
	})
	defer stop.Stop()
	for _, conn := range all {
		if n, _ := io.Copy(io.Discard, conn); n == unreadSize { // how it ends is the wire's
			whole++
		}
		conn.Close()
	}
	return whole
}

// TestUnreadOfACaller shows what a caller does not read, refuses its dials for that, and forgets it once it is read.
func TestUnreadOfACaller(t *testing.T) {
	t.Parallel()
	eachWire(t, "{cluster: {unreadBytes: 100MiB}, caller: {unreadBytes: 64KiB}}",
		func(w *world, p *proxy, records func() string, all []io.ReadWriteCloser) {
			eventually(w, "it is shown", func() bool {
				own := w.unread("caller")
				return own.Used > 64<<10 && own.Bound == 64<<10 && w.unread("cluster").Used == own.Used
			})
			ctx, cancel := context.WithTimeout(w.Context(), bound)
			defer cancel()
			nobody := fmt.Sprintf("127.0.0.1:%d", w.ports(1)[0])
			eventually(w, "a dial is refused for it", func() bool { // sockets may take some of it yet
				if _, err := p.dial(ctx, nobody); err == nil {
					w.Fatal("a dial to nobody has succeeded")
				}
				return w.unread("caller").Hits > 0 && strings.Contains(records(), "may leave 64 KiB unread")
			})
			if n := w.readAll(all); n != len(all) {
				w.Errorf("all that was sent came on %d connections of %d", n, len(all))
			}
			eventually(w, "nothing is unread", func() bool { return w.unread("caller").Used == 0 && w.unread("cluster").Used == 0 })
		})
}

// TestUnreadOfACluster ends connections that are not read, and no other.
func TestUnreadOfACluster(t *testing.T) {
	t.Parallel()
	eachWire(t, "{cluster: {unreadBytes: 64KiB}}",
		func(w *world, p *proxy, records func() string, all []io.ReadWriteCloser) {
			eventually(w, "one is cut", func() bool { return w.unread("cluster").Hits > 0 })
			cut := len(all) - w.readAll(all)
			if hits := int(w.unread("cluster").Hits); cut == 0 || hits < cut { // or it was cut at its last bytes
				w.Errorf("%d hits, and %d connections were cut", hits, cut)
			}
			eventually(w, "the records have why", func() bool { return strings.Count(records(), `"code":"limit_reached"`) >= cut })
			eventually(w, "nothing is unread", func() bool { return w.unread("cluster").Used == 0 })
			echoes(w, p.mustDial(runtest.Echo(w).Addr()), 1000)
		})
}
