// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"crypto/x509"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// TestItsOwnCertificateFollowsTheClock: a new one is made in half-time, and when the
// clock went back to before the one that is shown begins: a machine that started with
// a wrong date would otherwise be refused by everybody until it is restarted.
func TestItsOwnCertificateFollowsTheClock(t *testing.T) {
	ca := authority(t)
	c := &certificates{
		own: &own{ca: ca, name: "d", hosts: []string{"127.0.0.1"}}, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		bad: func(err error) { t.Error(err) },
	}
	begin := time.Now()
	if err := c.issue(begin); err != nil {
		t.Fatal(err)
	}
	shown := func(at time.Time) *x509.Certificate { return c.get(at, Reloadable{}).Certificates[0].Leaf }
	first := shown(begin)
	day := 24 * time.Hour
	for _, step := range []struct {
		what string
		at   time.Time
		anew bool
	}{
		{"an hour later", begin.Add(time.Hour), false},
		{"a day before half-time", begin.Add(discoveryCertificate/2 - day), false},
		{"in half-time", begin.Add(discoveryCertificate / 2), true},
		{"a moment back", begin.Add(discoveryCertificate/2 - time.Second), false},
		{"long after its end", begin.Add(discoveryCertificate * 5), true},
		{"back to the beginning", begin, true},
		{"and an hour on", begin.Add(time.Hour), false},
	} {
		leaf := shown(step.at)
		if step.at.Before(leaf.NotBefore) || !step.at.Before(leaf.NotAfter) {
			t.Errorf("%s it shows a certificate of %v until %v at %v", step.what, leaf.NotBefore, leaf.NotAfter, step.at)
		}
		if anew := leaf.SerialNumber.Cmp(first.SerialNumber) != 0; anew != step.anew {
			t.Errorf("%s: another certificate: %v, want %v", step.what, anew, step.anew)
		}
		first = leaf
	}
}

func TestTheCertificateNamesWhereItListens(t *testing.T) {
	for listen, more := range map[string][]string{
		":8446": nil, "0.0.0.0:8446": nil, "[::]:8446": nil, "127.0.0.1:8446": nil, "[::ffff:127.0.0.1]:8446": nil, "[fe80::1%eth0]:8446": nil, "": nil, "a b:1": nil,
		"192.0.2.7:8446": {"192.0.2.7"}, "[2001:db8::0:7]:8446": {"2001:db8::7"}, "discovery.example.com:8446": {"discovery.example.com"},
	} {
		hosts := []string{"localhost", "127.0.0.1"}
		if got, want := named(hosts, listen), append([]string{"localhost", "127.0.0.1"}, more...); !slices.Equal(got, want) {
			t.Errorf("of one that listens on %q: %v, want %v", listen, got, want)
		}
	}
}
