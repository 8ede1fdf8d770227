// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// attackers is how many of one kind there are at a time.
const attackers = 4

// hostile lets each kind of attack go on in a loop for the length of a fault.
func (w *world) hostile(ctx context.Context, kinds []func(deadline time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.pace.fault)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var count atomic.Int64
	var wg sync.WaitGroup
	for _, attack := range kinds {
		for range attackers {
			wg.Go(func() {
				for ctx.Err() == nil {
					if attack(deadline) != nil {
						run.Wait(ctx, 10*time.Millisecond) // refused: it tries again, as attackers do
					}
					count.Add(1)
				}
			})
		}
	}
	wg.Wait()
	w.attacks += int(count.Load())
	return nil
}

// with gives an attack its connection.
func with(network, address string, attack func(conn net.Conn) error) func(time.Time) error {
	return func(deadline time.Time) error {
		conn, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(deadline)
		return attack(conn)
	}
}

// unknownPeers connects to the ports that everybody can reach.
func (w *world) unknownPeers(ctx context.Context) error {
	forged, err := forge()
	if err != nil {
		return err
	}
	any := func(alpn ...string) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, NextProtos: alpn, Certificates: []tls.Certificate{forged}}
	}
	shake := func(cfg *tls.Config, then func(c *tls.Conn) error) func(net.Conn) error {
		return func(conn net.Conn) error {
			c := tls.Client(conn, cfg)
			if err := c.Handshake(); err != nil {
				return err
			}
			return then(c)
		}
	}
	wait := func(conn net.Conn) error { // until the hub has had enough
		_, err := io.Copy(io.Discard, conn)
		return err
	}
	var kinds []func(time.Time) error
	for _, address := range []string{w.host + ":8443", w.host + ":8444"} {
		kinds = append(kinds,
			with("tcp", address, func(c net.Conn) error { return nil }), // comes and goes
			with("tcp", address, wait),
			with("tcp", address, func(c net.Conn) error {
				io.WriteString(c, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
				return wait(c)
			}),
			with("tcp", address, func(c net.Conn) error { // noise
				_, err := io.CopyN(c, rand.Reader, 1<<20)
				return err
			}),
			with("tcp", address, func(c net.Conn) error { // a byte now and then
				for _, b := range []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") {
					if _, err := c.Write([]byte{b}); err != nil {
						return err
					}
					time.Sleep(50 * time.Millisecond)
				}
				return wait(c)
			}),
			with("tcp", address, shake(any("http/1.1"), func(c *tls.Conn) error { // a header without end
				_, err := io.WriteString(c, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 1<<20))
				return err
			})),
		)
	}
	kinds = append(kinds,
		with("tcp", w.host+":8443", shake(any(trust.ALPNSession), func(c *tls.Conn) error { return wait(c) })), // a bad certificate
		with("tcp", w.host+":8443", shake(any(trust.ALPNJoin), func(c *tls.Conn) error { // a guessed token
			body := `{"tokenId":"aaaaaaaa","secret":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","csr":"x"}`
			fmt.Fprintf(c, "POST /v1/join HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			return wait(c)
		})),
	)
	return w.hostile(ctx, kinds)
}

// forge makes a certificate that nobody has issued.
func forge() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// callers come through the sockets of one cluster.
func (w *world) callers(ctx context.Context, c *cluster) error {
	nowhere := fmt.Sprintf("CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n", 1)
	kinds := []func(time.Time) error{
		with("unix", c.socket, func(conn net.Conn) error { // asks and hangs up
			io.WriteString(conn, nowhere)
			return nil
		}),
		with("unix", c.socket, func(conn net.Conn) error { // hangs up half-way
			io.WriteString(conn, nowhere[:20])
			return nil
		}),
		with("unix", c.socket, func(conn net.Conn) error { // a header without end
			for range 64 {
				if _, err := io.WriteString(conn, strings.Repeat("X: y\r\n", 1000)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	for _, flood := range h2Floods() {
		kinds = append(kinds, with("unix", c.grpc, func(conn net.Conn) error {
			h := newH2(conn, "/ProxyService/Proxy")
			go io.Copy(io.Discard, conn) // ends with the connection
			return flood(h)
		}))
	}
	return w.hostile(ctx, kinds)
}

// h2 is a peer that keeps no rule of HTTP/2.
type h2 struct {
	*http2.Framer
	block []byte
}

func newH2(conn net.Conn, path string) *h2 {
	io.WriteString(conn, http2.ClientPreface)
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	h := &h2{Framer: http2.NewFramer(conn, conn), block: b.Bytes()}
	h.WriteSettings()
	return h
}

func (h *h2) open(id uint32) error {
	return h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.block, EndHeaders: true})
}

// h2Floods each do one thing many times, until they are cut off.
func h2Floods() []func(h *h2) error {
	many := func(do func(h *h2, id uint32) error) func(h *h2) error {
		return func(h *h2) error {
			for i := range 2000 {
				if err := do(h, uint32(2*i+1)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	never := binary.BigEndian.AppendUint32([]byte{0}, 1<<20)
	return []func(h *h2) error{
		many(func(h *h2, id uint32) error {
			return errors.Join(h.open(id), h.WriteRSTStream(id, http2.ErrCodeCancel))
		}),
		many(func(h *h2, id uint32) error { return h.open(id) }),
		many(func(h *h2, _ uint32) error { return h.WritePing(false, [8]byte{}) }),
		many(func(h *h2, _ uint32) error { return h.WriteSettings() }),
		many(func(h *h2, id uint32) error {
			if id == 1 {
				return h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.block})
			}
			return h.WriteContinuation(1, false, make([]byte, 1<<10))
		}),
		many(func(h *h2, id uint32) error { // messages that are never finished
			return errors.Join(h.open(id), h.WriteData(id, false, append(never, make([]byte, 4<<10)...)))
		}),
	}
}

// flood runs the attacks on a hub in one process, with their bounds of memory and
// processor time, so many times longer than make test does.
func (d *driver) flood(ctx context.Context) error {
	d.say("the floods of test/system, %d times as long", d.floods)
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout", "60m", "-v", "-run", floodTests, "./test/system")
	cmd.Env = append(os.Environ(), "TOMBOLO_CHAOS_TIMES="+strconv.Itoa(d.floods))
	out, err := cmd.CombinedOutput()
	passed, failed := bytes.Count(out, []byte("\n--- PASS")), bytes.Count(out, []byte("\n--- FAIL"))
	if err != nil {
		fmt.Fprintf(d.stderr, "%s\n", out)
		failed = max(failed, 1)
	}
	d.line(line{name: "floods that hold their bounds of memory and processor time", value: float64(passed), target: 8, atLeast: true})
	d.line(line{name: "floods that do not", value: float64(failed), target: 0})
	return ctx.Err()
}

// floodTests are the attacks whose length can be chosen.
const floodTests = "^(TestFloodsOfFrames|TestRapidResetOfTheHub|TestFloodOfBadCertificates|TestFloodOfGuessedTokens|" +
	"TestHostileCallerOfKonnectivity|TestCallersWhoHangUp|TestAgentUnderAHostileHub|TestHeaderBombs|TestAnAgentComesThroughHalfHandshakes)$"
