// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// writeIdentity writes the files of an identity of no CA of ours.
func writeIdentity(t *testing.T, dir string) (cert, key, ca string) {
	t.Helper()
	pair := runtest.Certificate(t)
	text, err := trust.EncodeKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, ca = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key.pem"), filepath.Join(dir, "ca.crt")
	for path, data := range map[string][]byte{
		cert: trust.EncodeCertificate(pair.Certificate[0]), ca: trust.EncodeCertificate(pair.Certificate[0]), key: text,
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, ca
}
