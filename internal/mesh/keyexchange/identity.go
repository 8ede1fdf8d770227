// SPDX-License-Identifier: Apache-2.0

package keyexchange

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// The ALPN names, one for each cipher of packets. A change that old nodes cannot follow gets other ones.
const (
	protocolAES    = "tombolo-ipsec/2"
	protocolChaCha = "tombolo-ipsec/2-chacha20"
)

// Pin is what a node is known by.
type Pin = member.Pin

// Identity is a node's own certificate. Others know it by its pin, so it has no issuer, no name and no end.
type Identity struct {
	cert   tls.Certificate
	pin    Pin
	chacha bool // it asks for that
}

// NewIdentity makes the certificate of a private key.
func NewIdentity(key ed25519.PrivateKey) (Identity, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tombolo"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} // RFC 5280 section 4.1.2.5
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Identity{}, fault.New(fault.CodeInternal, "making this node's certificate").Because(err)
	}
	pin, err := pinOf(key.Public())
	return Identity{cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pin: pin}, err
}

// Pin is by what others know it.
func (i Identity) Pin() Pin { return i.pin }

func pinOf(key crypto.PublicKey) (Pin, error) {
	spki, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return Pin{}, fault.New(fault.CodeInternal, "reading a public key").Because(err)
	}
	return sha256.Sum256(spki), nil
}

// WithChaCha asks for packets that are encrypted by ChaCha20-Poly1305: both ways, though the peer did not ask for it.
func (i Identity) WithChaCha() Identity {
	i.chacha = true
	return i
}

// ChaCha reports whether the packets of a connection's tunnel are encrypted by ChaCha20-Poly1305, else by AES-256-GCM.
func ChaCha(s tls.ConnectionState) bool { return s.NegotiatedProtocol == protocolChaCha }

// Client is how a node connects to the one with a pin.
func (i Identity) Client(peer Pin) *tls.Config {
	return i.config(func(p Pin) bool { return p == peer })
}

// Server is how a node is connected to by those whose pins are known.
//
//	known: called for each connection, with the pin of who comes
func (i Identity) Server(known func(Pin) bool) *tls.Config { return i.config(known) }

func (i Identity) config(known func(Pin) bool) *tls.Config {
	protocols := []string{protocolAES, protocolChaCha}
	if i.chacha {
		protocols = protocols[1:]
	}
	return &tls.Config{
		Certificates: []tls.Certificate{i.cert},
		MinVersion:   tls.VersionTLS13,
		// Who records an exchange now cannot read its packets with a quantum computer later.
		CurvePreferences:       []tls.CurveID{tls.X25519MLKEM768},
		NextProtos:             protocols, // the server takes the first of its own that the other end has
		SessionTicketsDisabled: true,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // VerifyConnection does it: there is no issuer
		VerifyConnection: func(s tls.ConnectionState) error {
			pin, err := Peer(s)
			if err == nil && !known(pin) {
				err = fault.New(fault.CodeCertInvalid, "the certificate of a node").
					Whyf("nobody that this node knows states its key %s", pin).
					Hint("it may have changed its key, or have been removed: 'tombolo mesh status' shows who is known")
			}
			return err
		},
	}
}

// Peer is the pin of the other end of a connection.
func Peer(s tls.ConnectionState) (Pin, error) {
	if len(s.PeerCertificates) != 1 {
		return Pin{}, fault.New(fault.CodeCertInvalid, "the certificate of a node").
			Whyf("it has shown %d certificates, want one", len(s.PeerCertificates))
	}
	key, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return Pin{}, fault.New(fault.CodeCertInvalid, "the certificate of a node").Whyf("its key is not one of Ed25519")
	}
	return pinOf(key)
}
