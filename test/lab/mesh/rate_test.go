// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// sink is the port at which bytes are taken and counted.
const sink = 9005

// TestMeshRate carries bytes over TCP from one node to the other: by the cables alone, by
// the mesh, directly and by the relay, and by wireguard-go's own program between the same
// machines. All bytes arrive; how fast, it prints: `make bench-mesh` takes more of them, in turns.
func TestMeshRate(t *testing.T) {
	rounds, size := 1, int64(8<<20)
	if n, err := strconv.Atoi(os.Getenv("TOMBOLO_LAB_ROUNDS")); err == nil {
		rounds, size = n, 512<<20
	}
	r := ofPair(t, lab.Pair{A: kind(t, "open"), B: kind(t, "open")})
	r.unbound()
	a, b := r.node(r.grid.A, settings{}), r.node(r.grid.B, settings{})
	for _, n := range []*node{a, b} {
		if err := n.wire.Close(); err != nil { // a listener takes the time that is measured
			t.Fatal(err)
		}
	}
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	others := r.wireguardGo(a.host, b.host, b.place.Addr4)
	r.takes(b.host)
	carriers := []carried{
		{"cable", b.place.Addr4, nil},
		{"mesh", b.overlay4, []int{a.process.Pid(), b.process.Pid()}},
		{"wireguard-go", others.to, others.pids},
	}
	results := map[string][]figure{}
	for round := range rounds {
		for i := range carriers {
			c := carriers[(round+i)%len(carriers)]
			results[c.name] = append(results[c.name], r.rate(a.host, c, size))
		}
	}
	if err := r.grid.Between.On(); err != nil {
		t.Fatal(err)
	}
	awaitState(a, b, relayed)
	byRelay := carried{"mesh by the relay", b.overlay4, []int{a.process.Pid(), b.process.Pid(), r.hub.process.Pid()}}
	for range rounds {
		results[byRelay.name] = append(results[byRelay.name], r.rate(a.host, byRelay, size/4))
	}
	for _, c := range append(carriers, byRelay) {
		f := median(results[c.name])
		t.Logf("%-18s %7.0f MB/s  %5.2f of wireguard-go  %5.2f s of processors per GB", c.name, f.rate, f.rate/median(results["wireguard-go"]).rate, f.cpu)
	}
}

// unbound has the hub's relay carry as much as it can: what it carries by default is a setting.
func (r *rig) unbound() {
	r.t.Helper()
	if err := r.hub.process.Stop(stopGrace); err != nil {
		r.t.Fatal(err)
	}
	r.hub.args = append(r.hub.args, "--config", r.write("hub.yaml", `apiVersion: tombolo.dev/v1alpha1
kind: HubConfig
limits:
  relay:
    nodeBytesPerSecond: none
    bytesPerSecond: none
`))
	r.startHub()
}

// carried is one way of carrying bytes, with the processes that do it.
type carried struct {
	name string
	to   netip.Addr
	pids []int
}

// figure is the rate in 10^6 bytes a second, and what processors spent on 10^9 bytes.
type figure struct{ rate, cpu float64 }

func median(all []figure) figure {
	slices.SortFunc(all, func(x, y figure) int { return cmp.Compare(x.rate, y.rate) })
	return all[len(all)/2]
}

// takes has a host take bytes: it answers with how many there were once they end.
func (r *rig) takes(h *lab.Host) {
	r.t.Helper()
	ln, err := h.Listen("tcp", fmt.Sprintf(":%d", sink))
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
				if err == nil {
					fmt.Fprintf(c, "%d", n)
				}
			}()
		}
	}()
}

// rate carries bytes and measures it.
func (r *rig) rate(from *lab.Host, c carried, size int64) figure {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", netip.AddrPortFrom(c.to, sink).String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(6 * patience))
	before, began := labtest.Spent(r.t, c.pids), time.Now()
	block := make([]byte, 256<<10)
	for sent := int64(0); sent < size; sent += int64(len(block)) {
		if _, err := conn.Write(block); err != nil {
			r.t.Fatalf("%s, after %d of %d bytes: %v", c.name, sent, size, err)
		}
	}
	answer, err := "", conn.(*net.TCPConn).CloseWrite()
	if text, err2 := io.ReadAll(conn); errors.Join(err, err2) == nil {
		answer = string(text)
	}
	if answer != strconv.FormatInt(size, 10) {
		r.t.Fatalf("%s: %q of %d bytes arrived", c.name, answer, size)
	}
	took, cpu := time.Since(began), labtest.Spent(r.t, c.pids)-before
	return figure{float64(size) / 1e6 / took.Seconds(), cpu.Seconds() / (float64(size) / 1e9)}
}

// wireguards are two hosts with wireguard-go's own program between them.
type wireguards struct {
	to   netip.Addr
	pids []int
}

// buildWireguardGo builds the program of the library's authors.
func (r *rig) buildWireguardGo() string {
	r.t.Helper()
	program := filepath.Join(r.dir, "wireguard-go")
	if out, err := exec.Command("go", "build", "-o", program, "golang.zx2c4.com/wireguard").CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// wireguardGo runs the program of the library's authors on two hosts.
func (r *rig) wireguardGo(a, b *lab.Host, at netip.Addr) wireguards {
	r.t.Helper()
	program := r.buildWireguardGo()
	const sockets = "/var/run/wireguard"
	if _, err := os.Stat(sockets); errors.Is(err, fs.ErrNotExist) { // the program makes it, and leaves it behind
		r.t.Cleanup(func() { os.Remove(sockets) }) // it stays if somebody else has a socket there by then
	}
	one, two := newKey(r.t), newKey(r.t)
	w := wireguards{to: netip.MustParseAddr("10.99.0.2")}
	for _, x := range []struct {
		host      *lab.Host
		own, peer *ecdh.PrivateKey
		inside    string
		more      string
	}{
		{a, one, two, "10.99.0.1/30", fmt.Sprintf("endpoint=%s\n", netip.AddrPortFrom(at, 51999))},
		{b, two, one, "10.99.0.2/30", ""},
	} {
		link := fmt.Sprintf("r%d%s", os.Getpid()%100000, x.host.Name()) // its socket is the machine's
		cmd := exec.Command(program, "-f", link)
		cmd.Env = append(labtest.Environment(), "LOG_LEVEL=error")
		process, err := x.host.Start(cmd)
		if err != nil {
			r.t.Fatal(err)
		}
		w.pids = append(w.pids, process.Pid())
		socket := filepath.Join(sockets, link+".sock")
		r.t.Cleanup(func() {
			process.Stop(stopGrace)
			os.Remove(socket) // of one that did not end by itself
		})
		r.configure(socket, fmt.Sprintf("set=1\nprivate_key=%s\nlisten_port=51999\npublic_key=%s\n%sallowed_ip=10.99.0.0/30\n\n",
			hex.EncodeToString(x.own.Bytes()), hex.EncodeToString(x.peer.PublicKey().Bytes()), x.more))
		for _, args := range [][]string{{"addr", "add", x.inside, "dev", link}, {"link", "set", link, "up"}} {
			if _, err := r.command(x.host, nil, "ip", args...); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	return w
}

// configure speaks to a WireGuard program (wireguard.com/xplatform).
func (r *rig) configure(socket, text string) {
	r.t.Helper()
	r.eventually("wireguard-go takes its configuration", nil, func() error {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
		answer := make([]byte, 64)
		n, err := c.Read(answer)
		if err != nil || !strings.HasPrefix(string(answer[:n]), "errno=0") {
			return fmt.Errorf("%q: %v", answer[:n], err)
		}
		return nil
	})
}

func newKey(t *testing.T) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
