// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// rig makes sessions over TLS on loopback.
type rig struct {
	t    testing.TB
	cert tls.Certificate
	ln   net.Listener
}

func newRig(t testing.TB) *rig {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := ListenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return &rig{t, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ln}
}

// conns makes a pair of TLS connections.
func (r *rig) conns(ctx context.Context) (near, far net.Conn, err error) {
	a, err := Dialer().DialContext(ctx, "tcp", r.ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	b, err := r.ln.Accept()
	if err != nil {
		return nil, nil, err
	}
	server := tls.Server(Wrap(b), &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{r.cert}, DynamicRecordSizingDisabled: true})
	client := tls.Client(Wrap(a), &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, DynamicRecordSizingDisabled: true})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		return nil, nil, err
	}
	return client, server, <-shaken
}

func (r *rig) sessions(connections int) (agent, hub *muxSession) {
	r.t.Helper()
	near, far, err := r.conns(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var mu sync.Mutex
	dial := func(ctx context.Context) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		a, b, err := r.conns(ctx)
		if err != nil {
			return nil, err
		}
		if err := hub.Attach(b); err != nil {
			return nil, err
		}
		return a, nil
	}
	h, err := Server(Mux, far, Options{Incoming: 20000, Connections: connections})
	if err != nil {
		r.t.Fatal(err)
	}
	hub = h.(*muxSession)
	a, err := Client(Mux, near, Options{Incoming: 20000, Connections: connections, Dial: dial})
	if err != nil {
		r.t.Fatal(err)
	}
	agent = a.(*muxSession)
	r.t.Cleanup(func() { agent.Close(); hub.Close() })
	return agent, hub
}

func TestSmoke(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			agent, hub := newRig(t).sessions(n)
			go func() {
				for {
					st, err := agent.AcceptStream(t.Context())
					if err != nil {
						return
					}
					go func() {
						io.Copy(st, st)
						st.CloseWrite()
						st.Close()
					}()
				}
			}()
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					size := 100 << uint(i)
					want := make([]byte, size)
					rand.Read(want)
					st, err := hub.OpenStream(t.Context(), want[:50])
					if err != nil {
						t.Error(err)
						return
					}
					go func() {
						st.Write(want[50:])
						st.CloseWrite()
					}()
					got, err := io.ReadAll(st)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d of %d bytes, %v", len(got), size, err)
					}
					st.Close()
				}()
			}
			wg.Wait()
			t.Logf("why %v / %v; hub %+v agent %+v growth %d %d rtt %v", hub.why, agent.why, hub.Info(), agent.Info(), hub.growth.Load(), agent.growth.Load(), hub.trip())
		})
	}
}

func BenchmarkOne(b *testing.B) {
	_, hub := func() (*muxSession, *muxSession) {
		agent, hub := newRig(b).sessions(1)
		go func() {
			for {
				st, err := agent.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go st.CopyTo(io.Discard, nil)
			}
		}()
		return agent, hub
	}()
	st, err := hub.OpenStream(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(32 << 10)
	b.ReportAllocs()
	src := &endless{left: b.N}
	b.ResetTimer()
	st.CopyFrom(src, nil)
}

type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	e.left--
	return len(p), nil
}
