// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// FuzzOperatorFile: a bundle is refused with what is wrong about it, or holds one
// key and two certificates.
func FuzzOperatorFile(f *testing.F) {
	ca, err := trust.NewAuthority("example.org", time.Now())
	if err != nil {
		f.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleOperator, Name: "o"}, Key: key.Public(), Life: time.Hour}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	text, err := trust.EncodeKey(key)
	if err != nil {
		f.Fatal(err)
	}
	cert := trust.EncodeCertificate(leaf.Raw)
	whole := string(text) + string(cert) + string(ca.CertificatePEM())
	f.Add([]byte(whole))
	f.Add([]byte(whole + string(cert)))
	f.Add([]byte(string(cert) + string(text) + string(ca.CertificatePEM())))
	f.Add(text)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "operator.pem")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		pair, root, err := trust.ReadBundle("operator", path)
		if err != nil {
			if f := fault.From(err); f.Code != fault.CodeCertInvalid || f.Next == "" {
				t.Errorf("an error that does not help: %v", err)
			}
			return
		}
		if pair.PrivateKey == nil || pair.Leaf == nil || root == nil || len(pair.Certificate) != 1 {
			t.Errorf("half a bundle: %+v, %v", pair, root)
		}
	})
}
