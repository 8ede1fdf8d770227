// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/trust"
)

// FuzzParseConfig: what is accepted can be run, and a file has one reading.
func FuzzParseConfig(f *testing.F) {
	const head = "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n"
	for _, s := range []string{
		"", "allow: [10.0.0.0/8:443, '*.svc:1-2', 'fd00::/8']\n", "hubs: [hub.example:8443]\nhealthListen: :0\n",
		"connections: 1\ncarrier: mux\ndrainTimeout: 1ns\n", "join: '@/etc/line'\nlog: {format: json, level: debug}\n", "allow: 10.0.0.0/8\n",
	} {
		f.Add([]byte(head + s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("agent.yaml", data)
		again, err2 := ParseConfig("agent.yaml", data)
		if fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("read twice: %v and %v", err, err2)
		}
		if err != nil {
			if !fault.Has(err, fault.CodeConfig) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		if fixed := fixedChanges(c, again); len(fixed) > 0 || !slices.Equal(c.Policy.Texts(), again.Policy.Texts()) {
			t.Errorf("read twice, these differ: %v", fixed)
		}
		if c.Connections < 1 || c.Connections > limit.Connections || c.DialTimeout <= 0 || c.IdleTimeout <= 0 || c.Drain <= 0 {
			t.Errorf("accepted: %+v", c)
		}
		if _, _, err := net.SplitHostPort(c.HealthListen); err != nil {
			t.Errorf("listens at %q", c.HealthListen)
		}
	})
}

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
		i, err := loadIdentity(dir)
		if err != nil {
			if !fault.Has(err, fault.CodeStateCorrupt) && !fault.Has(err, fault.CodeStateVersion) {
				t.Errorf("an error without its code: %v", err)
			}
			return
		}
		if i.joined() && !i.cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(i.key.Public()) {
			t.Error("the certificate is of another key")
		}
		if err := i.save(dir); err != nil {
			t.Fatal(err)
		}
		again, err := loadIdentity(dir)
		if err != nil || again.joined() != i.joined() || again.who != i.who || !slices.Equal(again.hubs, i.hubs) {
			t.Fatalf("%+v became %+v, %v", i, again, err)
		}
		a, err1 := trust.EncodeKey(i.key)
		b, err2 := trust.EncodeKey(again.key)
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Error("the key is another one")
		}
	})
}
