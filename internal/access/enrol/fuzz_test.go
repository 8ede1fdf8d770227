// SPDX-License-Identifier: Apache-2.0

package enrol

import (
	"bytes"
	"crypto"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// FuzzIdentityFile: an identity file is refused with a reason, or gives an
// identity that is the same after it was stored again, and whose certificate
// belongs to its key.
func FuzzIdentityFile(f *testing.F) {
	key, err := trust.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	text, err := trust.EncodeKey(key)
	if err != nil {
		f.Fatal(err)
	}
	ca, err := trust.NewAuthority("example.org", time.Now())
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleHub, Name: "a1"}, Key: key.Public(), Life: time.Hour}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []stored{
		{Version: identityVersion, Key: string(text), Certificate: string(trust.EncodeCertificate(leaf.Raw)), CA: string(ca.CertificatePEM()), Hubs: []string{"hub:1"}},
		{Version: identityVersion, Key: string(text)}, {Version: identityVersion + 1}, {Version: -1, Key: string(text), Hubs: []string{"", "a:1"}},
		{Version: identityVersion, Key: string(text), Certificate: "none", CA: "none"}, {},
	} {
		data, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := filepath.Join(dir, "agent")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, identityFile)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		i, err := Load(dir)
		if err != nil {
			if !fault.Has(err, fault.CodeStateCorrupt) && !fault.Has(err, fault.CodeStateVersion) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		if i.Joined() && !i.Cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(i.Key.Public()) {
			t.Error("the certificate is of another key")
		}
		if err := i.Save(dir); err != nil {
			t.Fatal(err)
		}
		again, err := Load(dir)
		if err != nil || again.Joined() != i.Joined() || again.Who != i.Who || again.Token != i.Token || !slices.Equal(again.Hubs, i.Hubs) {
			t.Fatalf("%+v became %+v, %v", i, again, err)
		}
		a, err1 := trust.EncodeKey(i.Key)
		b, err2 := trust.EncodeKey(again.Key)
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Error("the key is another one")
		}
	})
}
