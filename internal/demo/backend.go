// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// backend is an HTTPS server in a cluster. Each has a certificate that nobody
// else's client trusts, so an answer proves which cluster gave it.
type backend struct {
	cluster  string
	listener net.Listener
	cert     tls.Certificate
	trust    *x509.CertPool // holds this backend's certificate only
}

// newBackend makes the certificate for the address that the listener has.
func newBackend(cluster string, listener net.Listener, now time.Time) (*backend, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for the backend of %s: %w", cluster, err)
	}
	host, _, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "backend of " + cluster},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.ParseIP(host)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for the backend of %s: %w", cluster, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	trust := x509.NewCertPool()
	trust.AddCert(leaf)
	return &backend{
		cluster: cluster, listener: listener, trust: trust,
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
	}, nil
}

// serve answers until the context ends.
func (b *backend) serve(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello from %s", b.cluster)
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 256<<10)
		for {
			if _, err := w.Write(block); err != nil {
				return // the reader has enough
			}
		}
	})
	server := &http.Server{
		Handler:           mux,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{b.cert}, MinVersion: tls.VersionTLS13},
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // a reader that hangs up is no news
	}
	stop := run.OnDone(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(b.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
