// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// A service with a CA of its own is refused without a pin, and the pin is named.
func TestMissingPinIsNamed(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	check := Service{}.tls("127.0.0.1").VerifyConnection
	if check == nil {
		t.Fatal("nothing checks the certificate")
	}
	err := bySystem("127.0.0.1", []*x509.Certificate{srv.Certificate()})
	if !fault.Has(err, fault.CodeCAMismatch) || !strings.Contains(err.Error(), "--pin") {
		t.Errorf("%v", err)
	}
	if bySystem("127.0.0.1", nil) == nil {
		t.Error("no certificate is one")
	}
}
