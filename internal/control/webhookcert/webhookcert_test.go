// SPDX-License-Identifier: Apache-2.0

package webhookcert_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/control/webhookcert"
)

func plan() webhookcert.Plan {
	return webhookcert.Plan{Life: 24 * time.Hour, Names: []string{"hook.ns.svc"}}
}

// verified says whether who trusts a bundle accepts a certificate.
func verified(t *testing.T, bundle []byte, have map[string][]byte, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("no CA")
	}
	pair, err := tls.X509KeyPair(have[webhookcert.Certificate], have[webhookcert.Key])
	if err != nil {
		t.Fatal(err)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: "hook.ns.svc", Roots: roots, CurrentTime: now})
	return err
}

// TestRenewalsOverlap: for forty days somebody who learns of a new CA half an hour late, and somebody who serves
// the last certificate for as long, are never refused.
func TestRenewalsOverlap(t *testing.T) {
	const late, step = 30 * time.Minute, 15 * time.Minute
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	have, why, err := webhookcert.Renew(nil, plan(), now)
	if err != nil || why != "there were none" {
		t.Fatal(why, err)
	}
	begin, whys := now, map[string]int{}
	bundle, bundleAt := have[webhookcert.CACertificates], now
	served, servedAt := have, now
	for ; now.Before(begin.Add(40 * 24 * time.Hour)); now = now.Add(step) {
		next, why, err := webhookcert.Renew(have, plan(), now)
		if err != nil {
			t.Fatal(err)
		}
		if why != "" {
			whys[why]++
		}
		if !bytes.Equal(next[webhookcert.CACertificates], have[webhookcert.CACertificates]) {
			bundleAt = now.Add(late)
		}
		if !bytes.Equal(next[webhookcert.Certificate], have[webhookcert.Certificate]) {
			servedAt = now.Add(late)
		}
		have = next
		if !now.Before(bundleAt) {
			bundle = have[webhookcert.CACertificates]
		}
		for _, s := range []map[string][]byte{have, served} {
			if err := verified(t, bundle, s, now); err != nil {
				t.Fatalf("%v: %v", now.Sub(begin), err)
			}
		}
		if !now.Before(servedAt) {
			served = have
		}
	}
	for _, want := range []string{"the CA ends soon: a new one is trusted from now on", "the CA is a new one",
		"the certificate ends soon", "a CA has expired"} {
		if whys[want] < 10 {
			t.Errorf("%q: %d times in 40 days", want, whys[want])
		}
	}
}

func TestWhatIsGoodStays(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good, _, err := webhookcert.Renew(nil, plan(), now)
	if err != nil {
		t.Fatal(err)
	}
	with := func(key, value string) map[string][]byte {
		out := maps.Clone(good)
		out[key] = []byte(value)
		return out
	}
	for name, c := range map[string]struct {
		have   map[string][]byte
		plan   webhookcert.Plan
		after  time.Duration
		why    string
		sameCA bool
	}{
		"at once":             {good, plan(), 0, "", true},
		"before two thirds":   {good, plan(), 15 * time.Hour, "", true},
		"after two thirds":    {good, plan(), 17 * time.Hour, "the certificate ends soon", true},
		"another name":        {good, webhookcert.Plan{Life: 24 * time.Hour, Names: []string{"b"}}, 0, "the names are others", true},
		"no certificate":      {with(webhookcert.Certificate, ""), plan(), 0, "there is no certificate", true},
		"somebody else's key": {with(webhookcert.Key, "x"), plan(), 0, "there is no certificate", true},
		"after all ended":     {good, plan(), 97 * time.Hour, "a CA has expired", false},
		"no keys of CAs": {with(webhookcert.CAKeys, ""), plan(), 0,
			"they could not be read: there are 1 certificates and 0 keys of CAs", false},
	} {
		got, why, err := webhookcert.Renew(c.have, c.plan, now.Add(c.after))
		if err != nil || why != c.why {
			t.Errorf("%s: %q, %v", name, why, err)
			continue
		}
		if same := bytes.Equal(got[webhookcert.CACertificates], good[webhookcert.CACertificates]); same != c.sameCA {
			t.Errorf("%s: the same CA: %v", name, same)
		}
		if _, why, err := webhookcert.Renew(got, c.plan, now.Add(c.after)); why != "" || err != nil {
			t.Errorf("%s: once more: %q, %v", name, why, err)
		}
	}
}

func FuzzRenew(f *testing.F) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good, _, err := webhookcert.Renew(nil, plan(), now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[webhookcert.CACertificates], good[webhookcert.CAKeys], good[webhookcert.Certificate], good[webhookcert.Key])
	f.Fuzz(func(t *testing.T, ca, caKey, cert, key []byte) {
		have := map[string][]byte{webhookcert.CACertificates: ca, webhookcert.CAKeys: caKey,
			webhookcert.Certificate: cert, webhookcert.Key: key}
		got, _, err := webhookcert.Renew(have, plan(), now)
		if err != nil {
			t.Fatal(err)
		}
		if err := verified(t, got[webhookcert.CACertificates], got, now); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAddressesAreNames: an API server that reaches the webhooks by a URL with an address verifies that.
func TestAddressesAreNames(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := plan()
	old, _, err := webhookcert.Renew(nil, p, now)
	if err != nil {
		t.Fatal(err)
	}
	p.Names = append(p.Names, "192.0.2.1", "2001:db8::1")
	have, why, err := webhookcert.Renew(old, p, now)
	if err != nil || why != "the names are others" {
		t.Fatal(why, err)
	}
	if _, why, err = webhookcert.Renew(have, p, now); err != nil || why != "" {
		t.Fatal(why, err)
	}
	pair, err := tls.X509KeyPair(have[webhookcert.Certificate], have[webhookcert.Key])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hook.ns.svc", "192.0.2.1", "2001:db8::1"} {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}
