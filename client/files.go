// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/tls"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// config returns the present TLS configuration. While the files are incomplete, as when
// they are being replaced, it returns the last good one.
func (d *Dialer) config() (*tls.Config, error) {
	return d.files.Config(d.load, d.Certificate, d.Key, d.CA)
}

func (d *Dialer) load() (*tls.Config, error) {
	bad := fault.New(fault.CodeCertInvalid, "the client certificate cannot be used").
		Hint("make one: tombolo egress-config CLUSTER --mode connect-tls --out-dir DIR")
	var texts [3][]byte
	for i, path := range []string{d.Certificate, d.Key, d.CA} {
		// The key's mode is not checked: a Secret volume is readable by the whole pod.
		text, err := private.ReadPublic(path, limit.PrivateFile)
		if err != nil {
			return nil, bad.Because(err)
		}
		texts[i] = text
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, bad.Because(err)
	}
	cas, err := trust.ParseCertificates(texts[2])
	if err != nil {
		return nil, bad.Because(err)
	}
	if d.Cluster != "" {
		if len(pair.Leaf.URIs) != 1 {
			return nil, bad.Whyf("it has no identity")
		}
		who, err := id.ParseURI(pair.Leaf.URIs[0].String())
		if err != nil {
			return nil, bad.Because(err)
		}
		if who.Cluster.String() != d.Cluster {
			return nil, bad.Whyf("it is for %s, not for cluster %s", who, d.Cluster)
		}
	}
	roots := trust.RootsOf(cas...)
	cfg := trust.HubClientConfig(func() trust.Check { return trust.Check{Roots: roots, Now: time.Now()} }, &pair,
		"http/1.1")
	cfg.ServerName = trust.ServerName(d.Hub)
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	return cfg, nil
}
