// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/trust"
)

const (
	identityFile    = "identity.json"
	identityVersion = 1
)

// identity is what an agent is: its key, its certificate and the CA it trusts.
// Before the first join there is a key only, which is stored first, so that a
// join whose answer was lost can be repeated with the same key.
type identity struct {
	key  crypto.Signer
	cert *x509.Certificate // nil before the first join
	ca   *x509.Certificate
	who  id.Identity
	hubs []string
	// tickets resume TLS with a hub. They belong to the certificate: a resumed
	// handshake shows the one of the first, so a renewed certificate begins anew.
	tickets tls.ClientSessionCache
}

// stored is the form of the identity file, mode 0600.
type stored struct {
	Version     int      `json:"version"`
	Key         string   `json:"key"`
	Certificate string   `json:"certificate,omitempty"`
	CA          string   `json:"ca,omitempty"`
	Hubs        []string `json:"hubs,omitempty"`
}

func (i *identity) joined() bool { return i != nil && i.cert != nil }

// tls is the identity for a handshake.
func (i *identity) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{i.cert.Raw}, PrivateKey: i.key, Leaf: i.cert}
}

// loadIdentity reads the identity; nil without error means that there is none.
func loadIdentity(dir string) (*identity, error) {
	path := filepath.Join(dir, identityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.CodeStateAccess, "read the agent's identity").Because(err).Hint("run as the user that owns %s", dir)
	}
	broken := fault.New(fault.CodeStateCorrupt, "the agent's identity in "+path+" cannot be read").
		Hint("remove the file and join again with a new token")
	var form struct { // a newer version may have other fields
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, broken.Whyf("it is no JSON of ours")
	}
	if form.Version > identityVersion {
		return nil, fault.Newf(fault.CodeStateVersion, "the identity in %s has version %d", path, form.Version).
			Whyf("this release reads up to version %d", identityVersion).Hint("run the newer release")
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, broken.Whyf("it is no JSON of ours")
	}
	out := &identity{hubs: s.Hubs}
	if out.key, err = trust.ParseKey([]byte(s.Key)); err != nil {
		return nil, broken.Because(err)
	}
	if s.Certificate == "" {
		return out, nil
	}
	if err := out.setCertificates(s.Certificate, s.CA); err != nil {
		return nil, broken.Because(err)
	}
	return out, nil
}

func (i *identity) setCertificates(certPEM, caPEM string) error {
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
	if k, ok := certs[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !k.Equal(i.key.Public()) {
		return fault.New(fault.CodeCertInvalid, "the certificate does not belong to the key")
	}
	i.cert, i.ca, i.who = certs[0], cas[0], who
	i.tickets = tls.NewLRUClientSessionCache(limit.Tickets)
	return nil
}

// save replaces the identity file in one step: written beside it, flushed, renamed.
func (i *identity) save(dir string) error {
	key, err := trust.EncodeKey(i.key)
	if err != nil {
		return err
	}
	s := stored{Version: identityVersion, Key: string(key), Hubs: i.hubs}
	if i.cert != nil {
		s.Certificate = string(trust.EncodeCertificate(i.cert.Raw))
		s.CA = string(trust.EncodeCertificate(i.ca.Raw))
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(dir, data); err != nil {
		return fault.New(fault.CodeStateAccess, "the state directory "+dir+" cannot be written").Because(err).
			Hint("create it for this user (uid %d), or choose another with --state-dir", os.Getuid())
	}
	return nil
}

func writeFile(dir string, data []byte) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".identity-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, identityFile)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
