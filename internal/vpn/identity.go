// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// The names of OpenVPN's files.
const caName, certName, keyName, tlsName = "ca.pem", "certificate.pem", "key.pem", "tls.key"

// identity is who one is, as files have it now.
type identity struct {
	name  string // for people: a URI, or a common name
	leaf  *tls.Certificate
	ca    *x509.Certificate // of a bundle; nil: of files
	files map[string][]byte
}

// expires is when the certificate does.
func (i identity) expires() time.Time { return i.leaf.Leaf.NotAfter }

// read reads the files of an identity, and the static key.
func (c common) read(role id.Role) (identity, error) {
	var out identity
	var err error
	if c.Identity.Bundle != "" {
		out, err = c.bundle(role)
	} else {
		out, err = c.pair()
	}
	if err != nil {
		return out, err
	}
	for _, path := range []string{c.OpenVPN.TLSAuth, c.OpenVPN.TLSCrypt} {
		if path == "" {
			continue
		}
		data, err := private.Read(path, limit.KeyFile)
		if fault.Has(err, fault.CodeSecret) {
			return out, err // which says how to close it
		}
		if err == nil {
			err = openvpn.CheckStaticKey(data)
		}
		if err != nil {
			return out, fault.Newf(fault.CodeConfig, "the key %s cannot be used", path).Because(err).
				Hint("make one for both ends: tombolo vpn key --out FILE")
		}
		out.files[tlsName] = data
	}
	return out, nil
}

func (c common) bundle(role id.Role) (identity, error) {
	cert, ca, err := trust.ReadBundle(string(role), c.Identity.Bundle)
	if err != nil {
		return identity{}, err
	}
	who, ok := named(cert.Leaf)
	if !ok || who.Role != role || who.Cluster.String() != c.Cluster {
		return identity{}, fault.Newf(fault.CodeCertInvalid, "the certificate %s cannot be used for cluster %s",
			c.Identity.Bundle, c.Cluster).Whyf("it is that of %s", who).
			Hint("issue one: tombolo certificate issue --role %s --cluster %s --name NAME --out FILE", role, c.Cluster)
	}
	key, err := trust.EncodeKey(cert.PrivateKey)
	if err != nil {
		return identity{}, err
	}
	return identity{who.URI(), cert, ca, map[string][]byte{
		caName: trust.EncodeCertificate(ca.Raw), certName: trust.EncodeCertificate(cert.Leaf.Raw), keyName: key,
	}}, nil
}

func (c common) pair() (identity, error) {
	cert, err := private.Pair(c.Identity.Certificate, c.Identity.Key)
	if err != nil {
		return identity{}, err
	}
	if cert.Leaf == nil {
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return identity{}, fault.New(fault.CodeCertInvalid, "the certificate "+c.Identity.Certificate).Because(err)
		}
	}
	out := identity{cert.Leaf.Subject.CommonName, &cert, nil, map[string][]byte{}}
	for name, path := range map[string]string{caName: c.Identity.CA, certName: c.Identity.Certificate} {
		if out.files[name], err = private.ReadPublic(path, limit.PrivateFile); err != nil {
			return identity{}, fault.New(fault.CodeConfig, "the file "+path+" cannot be read").Because(err).
				Hint("correct identity in the configuration")
		}
	}
	if out.files[keyName], err = private.Read(c.Identity.Key, limit.PrivateFile); err != nil {
		return identity{}, err
	}
	return out, nil
}

// named is who a certificate of our CA is for.
func named(leaf *x509.Certificate) (id.Identity, bool) {
	if len(leaf.URIs) != 1 {
		return id.Identity{}, false
	}
	who, err := id.ParseURI(leaf.URIs[0].String())
	return who, err == nil
}

// sources are the files that are read again when they change.
func (c common) sources() (out []string) {
	i := c.Identity
	for _, path := range []string{i.Bundle, i.Certificate, i.Key, i.CA, c.OpenVPN.TLSAuth, c.OpenVPN.TLSCrypt} {
		if path != "" {
			out = append(out, path)
		}
	}
	return out
}

// stamps tell files from what they were. One that cannot be read has none.
type stamps []string

func stampsOf(paths []string) (out stamps) {
	for _, path := range paths {
		text := ""
		if info, err := os.Stat(path); err == nil {
			real, _ := filepath.EvalSymlinks(path) // of a Secret's files, which are replaced by moving a link
			text = real + info.ModTime().String()
		}
		out = append(out, text)
	}
	return out
}

// changed reports whether all can be read and some are others than they were.
func (s stamps) changed(now stamps) bool { return !slices.Contains(now, "") && !slices.Equal(s, now) }

// in names the files of a process.
func in(dir string, c openvpn.Common) openvpn.Common {
	c.CA, c.Certificate, c.Key = filepath.Join(dir, caName), filepath.Join(dir, certName), filepath.Join(dir, keyName)
	for _, path := range []*string{&c.TLSAuth, &c.TLSCrypt} {
		if *path != "" {
			*path = filepath.Join(dir, tlsName)
		}
	}
	c.Management = socketOf(dir)
	return c
}
