// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// testCert is one of an agent, as some change makes it.
func testCert(change func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "agent", Organization: []string{"nodes"}},
		Issuer: pkix.Name{CommonName: "ca"}, DNSNames: []string{"a.example", "b.example"},
		IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}, URIs: []*url.URL{{Scheme: "spiffe", Host: "x", Path: "/a"}},
		EmailAddresses: []string{"a@b.example"}}
	change(c)
	return c
}

func TestHolderOfACertificate(t *testing.T) {
	own := holderOf(testCert(func(*x509.Certificate) {}))
	for name, c := range map[string]struct {
		change func(*x509.Certificate)
		same   bool
	}{
		"renewed": {func(c *x509.Certificate) {
			c.SerialNumber, c.NotAfter, c.Raw = nil, time.Now(), []byte{1}
			slices.Reverse(c.DNSNames)
			c.IPAddresses = []net.IP{{10, 0, 0, 1}}
		}, true},
		"of another subject": {func(c *x509.Certificate) { c.Subject.CommonName = "other" }, false},
		"of another issuer":  {func(c *x509.Certificate) { c.Issuer.CommonName = "other" }, false},
		"of another name":    {func(c *x509.Certificate) { c.DNSNames[1] = "c.example" }, false},
		"of fewer names":     {func(c *x509.Certificate) { c.DNSNames = c.DNSNames[:1] }, false},
		"two names in one":   {func(c *x509.Certificate) { c.DNSNames = []string{"a.example\" \"DNS:b.example"} }, false},
		"of another address": {func(c *x509.Certificate) { c.IPAddresses[0] = net.IPv4(10, 0, 0, 2) }, false},
		"of another URI":     {func(c *x509.Certificate) { c.URIs[0].Path = "/b" }, false},
		"of another mailbox": {func(c *x509.Certificate) { c.EmailAddresses = nil }, false},
		"a name as a mailbox": {func(c *x509.Certificate) {
			c.EmailAddresses, c.DNSNames = nil, append(c.DNSNames, c.EmailAddresses...)
		}, false},
	} {
		if got := holderOf(testCert(c.change)); (got == own) != c.same {
			t.Errorf("%s: %v, beside %v", name, got, own)
		}
	}
}

func TestHolderForPeople(t *testing.T) {
	for want, h := range map[string]Holder{
		"":                                     {},
		"system:serviceaccount:ns:a on node-1": HolderOfToken("system:serviceaccount:ns:a", "node-1"),
		"system:serviceaccount:ns:a":           HolderOfToken("system:serviceaccount:ns:a", ""),
		`CN=x by "CN=ca" for ["DNS:x"]`: holderOf(&x509.Certificate{Subject: pkix.Name{CommonName: "x"},
			Issuer: pkix.Name{CommonName: "ca"}, DNSNames: []string{"x"}}),
	} {
		if got := h.String(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	long := Holder{Name: "x", Own: strings.Repeat("y", 10_000)}
	if n := len(long.String()); n > mostHolder {
		t.Errorf("people are shown %d bytes", n)
	}
}

// TestAttach binds an id to what makes a credential its agent's own, for as long as it has a tunnel.
func TestAttach(t *testing.T) {
	const account = "system:serviceaccount:kube-system:konnectivity-agent"
	for name, c := range map[string]struct {
		first, second Holder
		taken         bool
	}{
		"the same node":                  {HolderOfToken(account, "node-1"), HolderOfToken(account, "node-1"), true},
		"another node of the account":    {HolderOfToken(account, "node-1"), HolderOfToken(account, "node-2"), false},
		"an account without nodes":       {HolderOfToken(account, ""), HolderOfToken(account, ""), true},
		"a token without a node":         {HolderOfToken(account, "node-1"), HolderOfToken(account, ""), false},
		"another account":                {HolderOfToken(account, "node-1"), HolderOfToken("other", "node-1"), false},
		"nobody is asked for credential": {Holder{}, Holder{}, true},
	} {
		a := NewAgents(AgentsOptions{})
		first, err := a.attach(agentIdentity{agent: "a", holder: c.first}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.attach(agentIdentity{agent: "a", holder: c.second}, nil)
		if (err == nil) != c.taken {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			continue
		}
		text := fault.From(err).Explain()
		for _, want := range []string{"not_authorized", `"a"`, c.first.String(), c.second.String(), "--agent-id"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the refusal does not say %q: %s", name, want, text)
			}
		}
		if _, err = a.attach(agentIdentity{agent: "b", holder: c.second}, nil); err != nil {
			t.Errorf("%s, by another id: %v", name, err)
		}
		a.detach(first)
		if _, err = a.attach(agentIdentity{agent: "a", holder: c.second}, nil); err != nil {
			t.Errorf("%s, after the first has ended: %v", name, err)
		}
	}
}

// TestAnAgentThatDrainsGivesItsIDUp: its successor may have another credential, such as on another node.
func TestAnAgentThatDrainsGivesItsIDUp(t *testing.T) {
	a := NewAgents(AgentsOptions{})
	first, err := a.attach(agentIdentity{agent: "a", holder: HolderOfToken("x", "node-1")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first.draining.Store(true)
	for _, node := range []string{"node-2", "node-1"} {
		_, err := a.attach(agentIdentity{agent: "a", holder: HolderOfToken("x", node)}, nil)
		if taken := node == "node-2"; (err == nil) != taken {
			t.Errorf("%s: %v", node, err)
		}
	}
}

// TestSharedCredentials are those by which agents with several ids are connected now.
func TestSharedCredentials(t *testing.T) {
	a := NewAgents(AgentsOptions{})
	attach := func(agent, node string) *tunnel {
		t.Helper()
		x, err := a.attach(agentIdentity{agent: agent, holder: HolderOfToken("x", node)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	require := func(what string, want bool, all ...*tunnel) {
		t.Helper()
		for i, x := range all {
			if x.shared.Load() != want {
				t.Errorf("%s: the credential of tunnel %d is shared: %v", what, i, !want)
			}
		}
	}
	one, again := attach("a", ""), attach("a", "")
	own := attach("c", "node-1")
	require("one agent", false, one, again, own)
	other := attach("b", "")
	require("two agents", true, one, again, other)
	require("beside them", false, own)
	a.detach(other)
	require("one agent again", false, one, again, own)
}
