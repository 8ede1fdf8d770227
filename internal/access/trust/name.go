// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/x509"
	"encoding/asn1"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// tagURI is uniformResourceIdentifier of a GeneralName (RFC 5280 section 4.2.1.6).
const tagURI = 6

// nameOf reads the identity of a certificate from its bytes. The library parses URIs,
// which makes several texts equal: SPIFFE:// and spiffe://, or an empty fragment and
// none. An identity has one spelling.
func nameOf(leaf *x509.Certificate) (id.Identity, error) {
	none := fault.New(fault.CodeCertInvalid, "the peer cannot be identified").
		Whyf("its certificate does not carry exactly one SPIFFE URI")
	if leaf.IsCA {
		return id.Identity{}, none
	}
	var uris []string
	for _, ext := range leaf.Extensions {
		if !ext.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
			continue
		}
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(ext.Value, &names); err != nil || len(rest) > 0 {
			return id.Identity{}, none
		}
		for _, n := range names {
			if n.Class == asn1.ClassContextSpecific && n.Tag == tagURI {
				uris = append(uris, string(n.Bytes))
			}
		}
	}
	if len(uris) != 1 || len(leaf.URIs) != 1 {
		return id.Identity{}, none
	}
	who, err := id.ParseURI(uris[0])
	if err != nil {
		return id.Identity{}, fault.New(fault.CodeCertInvalid, "the peer cannot be identified").Because(err)
	}
	return who, nil
}
