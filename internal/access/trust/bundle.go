// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// ReadBundle reads a file of 'tombolo certificate issue' for a role: a private key, its certificate,
// and the CA.
func ReadBundle(role, path string) (*tls.Certificate, *x509.Certificate, error) {
	data, err := private.Read(path, limit.PrivateFile)
	if fault.Has(err, fault.CodeSecret) {
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, fault.New(fault.CodeUsage, "the "+role+" file cannot be read").Because(err).
			Hint("name one made by: tombolo certificate issue --role %s --name NAME --out FILE", role)
	}
	damaged := func() *fault.Fault {
		return fault.New(fault.CodeCertInvalid, "the "+role+" file "+path+" is damaged").
			Hint("issue a new one: tombolo certificate issue --role %s --name NAME --out FILE", role)
	}
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, nil, damaged().Whyf("it holds no key in PEM")
	}
	key, err := ParseKey(pem.EncodeToMemory(block))
	if err != nil {
		return nil, nil, damaged().Because(err)
	}
	certs, err := ParseCertificates(bytes.TrimSpace(rest))
	if err != nil {
		return nil, nil, damaged().Because(err)
	}
	if len(certs) != 2 {
		return nil, nil, damaged().Whyf("it holds %d certificates, not 2", len(certs))
	}
	return &tls.Certificate{Certificate: [][]byte{certs[0].Raw}, PrivateKey: key, Leaf: certs[0]}, certs[1], nil
}
