// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is a cluster's certificate authority; it writes what it issues into dir.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// subject is whom a certificate is for.
type subject struct {
	name  string // common name: the user, for clients
	group string // organisation: the user's group, for clients
	hosts []string
}

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rig-ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, cert: cert, key: key}
	if err := writePEM(p.crt("ca"), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return p, p.serviceAccountKeys()
}

func (p *pki) crt(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p *pki) pem(name string) string { return filepath.Join(p.dir, name+".key") }

// issue writes <file>.crt and <file>.key.
func (p *pki) issue(file string, s subject) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.name},
		NotBefore: p.cert.NotBefore, NotAfter: p.cert.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if s.group != "" {
		template.Subject.Organization = []string{s.group}
	}
	for _, host := range s.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, &key.PublicKey, p.key)
	if err != nil {
		return fmt.Errorf("issue a certificate for %s: %w", s.name, err)
	}
	if err := writePEM(p.crt(file), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(p.pem(file), key)
}

// serviceAccountKeys makes the key pair that signs and verifies service-account tokens.
func (p *pki) serviceAccountKeys() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := writeKey(p.pem("sa"), key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(p.dir, "sa.pub"), "PUBLIC KEY", der)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// kubeconfig writes a client configuration for the certificate <user>.crt.
func (p *pki) kubeconfig(path, server, user string) error {
	return p.kubeconfigBehind(path, server, "", user)
}

// kubeconfigBehind is kubeconfig with the name that the client says (SNI) and wants in the server's certificate.
// Empty: what stands in server.
func (p *pki) kubeconfigBehind(path, server, name, user string) error {
	return os.WriteFile(path, []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: rig
  cluster: {server: %q, tls-server-name: %q, certificate-authority: %q}
users:
- name: user
  user: {client-certificate: %q, client-key: %q}
contexts:
- name: rig
  context: {cluster: rig, user: user}
current-context: rig
`, server, name, p.crt("ca"), p.crt(user), p.pem(user))), 0o600)
}
