// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel/tunneltest"
)

// BenchmarkThroughput carries packets from one engine to another over loopback, and beside it
// from one device of wireguard-go to another over its own bind, in turns. The
// ratio is ours/std; below 1 ours is the faster one.
func BenchmarkThroughput(b *testing.B) {
	x, y := newNode(b, "10.1.0.1", nil, tunnel.AllOffloads()), newNode(b, "10.1.0.2", nil, tunnel.AllOffloads())
	meet(b, x, y)
	say(b, x, y, 1)
	p, q := stdPair(b)
	one := tunneltest.Packet(netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2"), 0, 1400)
	push(p, q, one, 100)
	const turn = 20_000
	var ours, std time.Duration
	b.SetBytes(1400)
	b.ResetTimer()
	for left := b.N; left > 0; left -= turn {
		n := min(left, turn)
		ours += push(x.tun, y.tun, one, n)
		b.StopTimer()
		std += push(p, q, one, n)
		b.StartTimer()
	}
	b.ReportMetric(ours.Seconds()/std.Seconds(), "ours/std")
	b.ReportMetric(float64(b.N)*1400*8/1e9/std.Seconds(), "std-Gb/s")
	b.ReportMetric(float64(b.N)*1400*8/1e9/ours.Seconds(), "ours-Gb/s")
}

// push carries packets with a bounded number under way, and says how long it took. What is
// lost is sent again.
func push(from, to *tunneltest.Pipe, p []byte, count int) time.Duration {
	began := time.Now()
	const under = 512
	stuck := time.NewTicker(200 * time.Millisecond)
	defer stuck.Stop()
	for sent, got, was := 0, 0, 0; got < count; {
		for sent < count && sent-got < under {
			from.Out <- p
			sent++
		}
		select {
		case <-to.In:
			got++
		case <-stuck.C:
			if got == was { // what is under way was lost
				sent = got
			}
			was = got
		}
	}
	return time.Since(began)
}

func stdPair(b *testing.B) (p, q *tunneltest.Pipe) {
	b.Helper()
	var devs [2]*device.Device
	var pipes [2]*tunneltest.Pipe
	var ports [2]int
	var secrets [2][32]byte
	var keys [2]member.Key
	for i := range devs {
		secrets[i] = [32]byte{0, byte(i + 1)} // the lowest bits count for nothing
		k, err := tunnel.NewSecret(secrets[i]).Public()
		if err != nil {
			b.Fatal(err)
		}
		keys[i], pipes[i] = k, tunneltest.NewPipe(false)
		devs[i] = device.NewDevice(pipes[i], conn.NewStdNetBind(), &device.Logger{Verbosef: device.DiscardLogf, Errorf: device.DiscardLogf})
		b.Cleanup(devs[i].Close)
		if err := devs[i].IpcSet("private_key=" + hex.EncodeToString(secrets[i][:]) + "\nlisten_port=0\n"); err != nil {
			b.Fatal(err)
		}
		if err := devs[i].Up(); err != nil {
			b.Fatal(err)
		}
		text, err := devs[i].IpcGet()
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if port, ok := strings.CutPrefix(line, "listen_port="); ok {
				fmt.Sscan(port, &ports[i])
			}
		}
	}
	for i := range devs {
		o := 1 - i
		if err := devs[i].IpcSet(fmt.Sprintf("public_key=%x\nendpoint=127.0.0.1:%d\nallowed_ip=10.1.0.%d/32\n", keys[o][:], ports[o], o+1)); err != nil {
			b.Fatal(err)
		}
	}
	return pipes[0], pipes[1]
}
