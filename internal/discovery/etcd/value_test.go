// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func TestKeysAndBack(t *testing.T) {
	for _, p := range []discovery.Place{
		{Cluster: discovery.Cluster{Protocol: discovery.Sidero, ID: "a/b"}, Member: "c"},
		{Cluster: discovery.Cluster{Protocol: discovery.Native, ID: "\x00\xff"}, Member: "/"},
	} {
		if got, ok := place("/x", key("/x", p)); !ok || got != p {
			t.Errorf("%+v came back as %+v, %t", p, got, ok)
		}
	}
	for _, k := range []string{"/x", "/x/v1/s/61", "/x/v1/q/61/61", "/x/v1/s/61/", "/x/v1/s/6g/61", "/x/v1/s/AA/61", "/x/v2/s/61/61", "/x/v1/s/61/61/61"} {
		if p, ok := place("/x", k); ok {
			t.Errorf("%s is %+v", k, p)
		}
	}
}

func TestValuesKeepTheirTimes(t *testing.T) {
	now := time.Now()
	l := roster.Lease{Data: []byte{}, Version: 1 << 60, Removed: true, Expires: now.Add(time.Minute), Endpoints: []roster.Endpoint{
		{Blob: []byte("a"), Expires: now.Add(time.Minute)}, {Blob: []byte("b"), Expires: now.Add(20 * time.Second)}}}
	v, err := decode(encode(l, now, 60))
	if err != nil {
		t.Fatal(err)
	}
	later := now.Add(time.Hour) // another clock
	got := v.at(later.Add(v.left))
	if v.ttl != 60 || v.left != time.Minute || !v.timed() || got.Data == nil || l.Become(got) != roster.Renewed {
		t.Errorf("%+v", v)
	}
	if d := got.Endpoints[1].Expires.Sub(later); d != 20*time.Second {
		t.Errorf("an endpoint ends after %s", d)
	}
}

func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := decode(raw)
		if err != nil {
			return
		}
		now := time.Now()
		again, err := decode(encode(v.at(now.Add(v.left)), now, v.ttl))
		if err != nil || v.at(now).Become(again.at(now)) != roster.Renewed || again.left != v.left || !slices.Equal(again.leads, v.leads) {
			t.Errorf("%+v came back as %+v: %v", v, again, err)
		}
	})
}

func TestBadConfigurationIsRefused(t *testing.T) {
	dir := t.TempDir()
	junk, empty := filepath.Join(dir, "junk"), filepath.Join(dir, "empty")
	for name, text := range map[string]string{junk: "junk", empty: "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := []string{"https://127.0.0.1:1"}
	for name, c := range map[string]struct {
		c    Config
		code fault.Code
	}{
		"no prefix":          {Config{Endpoints: at, Prefix: "/"}, fault.CodeConfig},
		"no endpoints":       {Config{Prefix: "/x"}, fault.CodeConfig},
		"missing CA":         {Config{Endpoints: at, Prefix: "/x", CAFile: filepath.Join(dir, "none")}, fault.CodeCertInvalid},
		"junk CA":            {Config{Endpoints: at, Prefix: "/x", CAFile: junk}, fault.CodeCertInvalid},
		"certificate alone":  {Config{Endpoints: at, Prefix: "/x", CertFile: junk}, fault.CodeCertInvalid},
		"junk certificate":   {Config{Endpoints: at, Prefix: "/x", CertFile: junk, KeyFile: junk}, fault.CodeCertInvalid},
		"user alone":         {Config{Endpoints: at, Prefix: "/x", Username: "u"}, fault.CodeConfig},
		"empty password":     {Config{Endpoints: at, Prefix: "/x", Username: "u", PasswordFile: empty}, fault.CodeConfig},
		"missing password":   {Config{Endpoints: at, Prefix: "/x", Username: "u", PasswordFile: filepath.Join(dir, "none")}, fault.CodeConfig},
		"password in clear":  {Config{Endpoints: []string{"http://127.0.0.1:1"}, Prefix: "/x", Username: "u", PasswordFile: junk}, fault.CodeConfig},
		"nobody is there":    {Config{Endpoints: []string{"http://127.0.0.1:1"}, Prefix: "/x", Times: Times{Wait: 100 * time.Millisecond}}, fault.CodeStoreAway},
		"no endpoint at all": {Config{Endpoints: []string{"::"}, Prefix: "/x", Times: Times{Wait: 100 * time.Millisecond}}, fault.CodeStoreAway},
	} {
		s, err := Open(t.Context(), c.c, discovery.NewBoard(discovery.Bounds{}))
		if !fault.Has(err, c.code) || fault.From(err).Next == "" {
			t.Errorf("%s: %v", name, err)
		}
		if s != nil {
			s.Close()
		}
		if err != nil && bytes.Contains([]byte(fault.From(err).Explain()), []byte("\njunk")) {
			t.Errorf("%s tells a secret", name)
		}
	}
}
