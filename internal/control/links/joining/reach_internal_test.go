// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/invite"
)

func TestMisnamed(t *testing.T) {
	with := func(cert x509.Certificate) error {
		return fmt.Errorf("get: %w", x509.HostnameError{Host: "k8s.example", Certificate: &cert})
	}
	var many []string
	for i := range mostNames + 2 {
		many = append(many, fmt.Sprintf("n%d", i))
	}
	const begins = "the server's certificate is not for k8s.example, but for "
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("connection refused"), ""},
		{with(x509.Certificate{DNSNames: []string{"kubernetes"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}),
			begins + "kubernetes, 10.0.0.1"},
		{with(x509.Certificate{}), begins + "no name at all"},
		{with(x509.Certificate{DNSNames: []string{"a\nb"}}), begins + "a b"},
		{with(x509.Certificate{DNSNames: many}), begins + "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, " +
			"n15, n16, n17, n18, n19, 2 more"},
	} {
		if got := misnamed(c.err); got != c.want {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}

// TestTheNameStays where the host cluster is reached at another address.
func TestTheNameStays(t *testing.T) {
	for _, c := range []struct{ said, server, name, host, proxy string }{
		{"kubernetes", "", "kubernetes", "https://k8s.example:6443", "http://proxy.example:3128"},
		{"kubernetes", "https://127.0.0.1:1", "kubernetes", "https://127.0.0.1:1", ""},
		{"", "", "", "https://k8s.example:6443", "http://proxy.example:3128"},
		{"", "https://127.0.0.1:1", "k8s.example", "https://127.0.0.1:1", ""},
	} {
		line := invite.Line{Server: "https://k8s.example:6443", ServerName: c.said, Proxy: "http://proxy.example:3128"}
		text, err := line.Kubeconfig("token")
		if err != nil {
			t.Fatal(err)
		}
		p, err := fromText([]byte(text), c.server)
		if err != nil {
			t.Fatal(err)
		}
		proxy := ""
		if p.config.Proxy != nil {
			u, err := p.config.Proxy(nil)
			if err != nil {
				t.Fatal(err)
			}
			proxy = u.String()
		}
		if p.config.ServerName != c.name || p.config.Host != c.host || proxy != c.proxy {
			t.Errorf("%+v: %q, %q, %q", c, p.config.ServerName, p.config.Host, proxy)
		}
	}
}
