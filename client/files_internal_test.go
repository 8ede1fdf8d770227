// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/client/internal/pemfiles"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// certified writes a certificate that signs for itself, and its key.
func certified(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	private, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err2 := x509.CreateCertificate(rand.Reader, tmpl, tmpl, private.Public(), private)
	der, err3 := x509.MarshalPKCS8PrivateKey(private)
	certificate, key = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	err4 := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600)
	err5 := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// TestWhatIsNoFileOfADialer: a pipe would have every dial wait for a writer, a device goes on
// for ever, and what is too large is no certificate. What was good before stays in use.
func TestWhatIsNoFileOfADialer(t *testing.T) {
	dir := t.TempDir()
	certificate, key := certified(t, dir)
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	text, err := os.ReadFile(certificate)
	if err := errors.Join(err, unix.Mkfifo(pipe, 0o600), os.WriteFile(large, append(bytes.Repeat([]byte("\n"), limit.PrivateFile), text...), 0o600)); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{"a pipe": pipe, "a file that is too large": large} {
		for i, which := range []string{"certificate", "key", "CA"} {
			d := &Dialer{Hub: "hub:1", Certificate: certificate, Key: key, CA: certificate}
			if _, err := d.config(); err != nil {
				t.Fatal(err)
			}
			for _, known := range []bool{true, false} {
				*[]*string{&d.Certificate, &d.Key, &d.CA}[i] = path
				if !known {
					d.files = pemfiles.Files{}
				}
				done := make(chan error, 1)
				go func() { _, err := d.config(); done <- err }()
				select {
				case err := <-done:
					if known != (err == nil) {
						t.Errorf("%s as the %s: %v", what, which, err)
					}
				case <-time.After(5 * time.Second):
					t.Errorf("%s as the %s: it waits", what, which)
					if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil { // and lets it go
						f.Close()
					}
					<-done
				}
			}
		}
	}
}
