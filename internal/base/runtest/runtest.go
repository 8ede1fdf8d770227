// SPDX-License-Identifier: Apache-2.0

// Package runtest has what tests need to run hubs and agents, in this process or as
// programs: private addresses and folders, targets to dial, captured output, and waits
// that do not measure speed. It does not start them, and does not know what they are.
package runtest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Patience bounds every wait. It does not measure speed: no test passes because something
// was quick enough.
const Patience = 40 * time.Second

// addresses counts those that this process has handed out.
var addresses atomic.Uint32

// Address is a loopback address, with this port, that no other test of this process, and
// hardly one of another, uses. A hub can restart on it.
func Address(port int) string { return address(os.Getpid(), int(addresses.Add(1)), port) }

// address gives each process 2,000 addresses before it reuses those of another one.
func address(pid, n, port int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+pid%250, (pid/250*8+n/250)%250, 1+n%250, port)
}

// Dir makes a folder whose name leaves room for the paths of unix sockets.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Within is a context that ends with the test, or when its patience does.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits for a condition; what says what was waited for.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	EventuallyWithin(t, Patience, what, holds)
}

// EventuallyWithin is Eventually for what may take longer than Patience by design.
func EventuallyWithin(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			if holds() { // the test itself may have stood still
				return
			}
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// Transcript collects output.
type Transcript struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends; it is safe for concurrent use.
func (s *Transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *Transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// Certificate is self-signed: for TLS connections whose peers are not verified.
func Certificate(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := oneCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// oneCertificate serves all tests of a process, which may make hundreds of connections.
var oneCertificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})
