// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// serverName stands in the certificate of the accepting end.
const serverName = "bench.internal"

// credentials are one certificate for both ends and the CA it is from, DER.
type credentials struct {
	CA   []byte `json:"ca"`
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
}

func newCredentials(now time.Time) (*credentials, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "end"}, DNSNames: []string{serverName},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	return &credentials{CA: caDER, Cert: leafDER, Key: keyDER}, err
}

// tls is mutual TLS 1.3 as the product speaks it; Go takes AES-128-GCM where the
// processor has AES.
func (c *credentials) tls() (*tls.Config, error) {
	key, err := x509.ParseECPrivateKey(c.Key)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(c.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true, ServerName: serverName,
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.Cert}, PrivateKey: key}},
		RootCAs:      roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}

// The files of credentials.
const (
	caFile   = "ca.crt"
	certFile = "end.crt"
	keyFile  = "end.key"
)

// write leaves files for programs that are no roles of ours.
func (c *credentials) write(dir string) error {
	var all error
	for name, block := range map[string]pem.Block{
		caFile:   {Type: "CERTIFICATE", Bytes: c.CA},
		certFile: {Type: "CERTIFICATE", Bytes: c.Cert},
		keyFile:  {Type: "EC PRIVATE KEY", Bytes: c.Key},
	} {
		all = errors.Join(all, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600))
	}
	return all
}

// errCipher says that the machine is not one that the figures are meant for.
var errCipher = errors.New("the connection does not use AES-128-GCM: this processor has no AES instructions, " +
	"so the figures would be those of ChaCha20")

// checkCipher makes sure that all transports are measured with the same cipher.
func checkCipher(conn *tls.Conn) error {
	if conn.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		return errCipher
	}
	return nil
}
