// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// Holder is whose credential an agent has shown. An agent id is bound to both parts: many agents share an account.
type Holder struct {
	Name string // the account, or the subject of the certificate; empty: no credential was asked for
	Own  string // what makes the credential its own within that; empty: nothing does
	Node string // the only one whose agents have it; empty: agents of many nodes may
}

// String is for people, and bounded.
func (h Holder) String() string {
	return untrusted.Text(strings.TrimSuffix(h.Name+" "+h.Own, " "), mostHolder)
}

// HolderOfToken is that of an account's token, which was made for a pod on a node. The pod is not part of it: another
// one takes its place on the node, and its id.
func HolderOfToken(account, node string) Holder {
	h := Holder{Name: account}
	if node != "" {
		h.Own, h.Node = "on "+node, node
	}
	return h
}

// holderOf is that of a certificate: of each that has the same issuer, subject and names, so that it may be renewed.
func holderOf(cert *x509.Certificate) Holder {
	var names []string
	for _, n := range cert.DNSNames {
		names = append(names, "DNS:"+n)
	}
	for _, n := range cert.IPAddresses {
		names = append(names, "IP:"+n.String())
	}
	for _, n := range cert.URIs {
		names = append(names, "URI:"+n.String())
	}
	for _, n := range cert.EmailAddresses {
		names = append(names, "email:"+n)
	}
	slices.Sort(names)
	return Holder{Name: cert.Subject.String(), Own: fmt.Sprintf("by %q for %q", cert.Issuer.String(), names)}
}
