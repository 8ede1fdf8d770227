// SPDX-License-Identifier: Apache-2.0

package enrol

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/store"
)

// File is the name of the identity file in a state directory.
const File = "identity.json"

const (
	identityFile    = File
	identityVersion = 1
)

// Identity is the key of an agent or a node, its certificate and the CA that it
// trusts. Before the first join there is only a key, stored in advance, so that a join
// whose answer was lost can be repeated with the same key.
type Identity struct {
	Key  crypto.Signer
	Cert *x509.Certificate // nil before the first join
	CA   *x509.Certificate
	Who  id.Identity
	Hubs []string
	// Token is the id (not the secret) of the token with which it joined.
	Token string
	// Tickets resume TLS with a hub. They belong to the certificate: a resumed
	// handshake presents that of the first, so a renewed certificate needs new ones.
	Tickets tls.ClientSessionCache
}

// stored is the content of the identity file, mode 0600.
type stored struct {
	Version     int      `json:"version"`
	Key         string   `json:"key"`
	Certificate string   `json:"certificate,omitempty"`
	CA          string   `json:"ca,omitempty"`
	Hubs        []string `json:"hubs,omitempty"`
	Token       string   `json:"token,omitempty"`
}

// Joined reports whether there is a certificate.
func (i *Identity) Joined() bool { return i != nil && i.Cert != nil }

// TLS returns the identity as a certificate for TLS.
func (i *Identity) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{i.Cert.Raw}, PrivateKey: i.Key, Leaf: i.Cert}
}

// Load reads the identity of a state directory; nil without an error means that there
// is none.
func Load(dir string) (*Identity, error) {
	path := filepath.Join(dir, identityFile)
	data, err := private.ReadState(path, limit.PrivateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if fault.Has(err, fault.CodeSecret) {
		return nil, err
	}
	if err != nil {
		return nil, fault.New(fault.CodeStateAccess, "the identity in "+dir+" cannot be read").Because(err).
			Hint("run as the user that owns %s, or choose another with --state-dir (stateDir)", dir)
	}
	broken := fault.New(fault.CodeStateCorrupt, "the identity in "+path+" cannot be read").
		Hint("remove the file and join again with a new token")
	var form struct { // a newer version may have other fields
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, broken.Whyf("it is not an identity file")
	}
	if form.Version > identityVersion {
		return nil, fault.Newf(fault.CodeStateVersion, "the identity in %s has version %d", path, form.Version).
			Whyf("this release reads up to version %d", identityVersion).Hint("run the newer release")
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, broken.Whyf("it is not an identity file")
	}
	out := &Identity{Hubs: s.Hubs, Token: s.Token}
	if out.Key, err = trust.ParseKey([]byte(s.Key)); err != nil {
		return nil, broken.Because(err)
	}
	if s.Certificate == "" {
		return out, nil
	}
	if err := out.SetCertificates(s.Certificate, s.CA); err != nil {
		return nil, broken.Because(err)
	}
	return out, nil
}

// SetCertificates takes over the certificate, which must belong to the key, and the CA.
func (i *Identity) SetCertificates(certPEM, caPEM string) error {
	certs, err := trust.ParseCertificates([]byte(certPEM))
	if err != nil {
		return err
	}
	cas, err := trust.ParseCertificates([]byte(caPEM))
	if err != nil {
		return err
	}
	if len(certs[0].URIs) != 1 {
		return fault.New(fault.CodeCertInvalid, "the certificate names no identity")
	}
	who, err := id.ParseURI(certs[0].URIs[0].String())
	if err != nil {
		return fault.New(fault.CodeCertInvalid, "the certificate names no identity").Because(err)
	}
	if k, ok := certs[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !k.Equal(i.Key.Public()) {
		return fault.New(fault.CodeCertInvalid, "the certificate does not belong to the key")
	}
	i.Cert, i.CA, i.Who = certs[0], cas[0], who
	i.Tickets = tls.NewLRUClientSessionCache(tickets)
	return nil
}

// Save replaces the identity file in one step: written beside it, flushed, renamed.
func (i *Identity) Save(dir string) error {
	key, err := trust.EncodeKey(i.Key)
	if err != nil {
		return err
	}
	s := stored{Version: identityVersion, Key: string(key), Hubs: i.Hubs, Token: i.Token}
	if i.Cert != nil {
		s.Certificate = string(trust.EncodeCertificate(i.Cert.Raw))
		s.CA = string(trust.EncodeCertificate(i.CA.Raw))
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := store.Write(filepath.Join(dir, identityFile), data); err != nil {
		return fault.New(fault.CodeStateAccess, "the state directory "+dir+" cannot be written").Because(err).
			Hint("create it for this user (uid %d), or choose another with --state-dir", os.Getuid())
	}
	return nil
}
