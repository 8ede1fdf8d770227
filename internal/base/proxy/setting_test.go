// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/proxy"
)

// TestConfigure: what is written chooses, what is wrong is named at its place and shows
// no password.
func TestConfigure(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://environment:1")
	broken := errors.New("the file cannot be read")
	file := func(text string, err error) func(string) (string, error) {
		return func(string) (string, error) { return text, err }
	}
	for _, c := range []struct {
		name    string
		in      proxy.Named
		via     string // "": none
		problem string
		err     error
	}{
		{"nothing", proxy.Named{}, "http://environment:1", "", nil},
		{"environment", proxy.Named{Proxy: "environment"}, "http://environment:1", "", nil},
		{"none", proxy.Named{Proxy: "none"}, "", "", nil},
		{"a URL", proxy.Named{Proxy: "https://u:geheim@p:3128/"}, "https://u:geheim@p:3128/", "", nil},
		{"no URL", proxy.Named{Proxy: "http://u:geheim@p:3128/x"}, "", "x.proxy: http://host:port or", nil},
		{"another scheme", proxy.Named{Proxy: "socks5://p"}, "", "x.proxy: ", nil},
		{"a file", proxy.Named{File: "f", Read: file("http://u:geheim@p:1\n", nil)}, "http://u:geheim@p:1", "", nil},
		{"a file that says none", proxy.Named{File: "f", Read: file("none\n", nil)}, "", "", nil},
		{"a file with nonsense", proxy.Named{File: "f", Read: file("geheim", nil)}, "", "x.proxy: ", nil},
		{"a file that is away", proxy.Named{File: "f", Read: file("", broken)}, "", "", broken},
		{"a file that is left unread", proxy.Named{File: "f"}, "", "", nil},
		{"both", proxy.Named{Proxy: "none", File: "f", Read: file("none", nil)}, "", "x.proxyFile: proxy stands there too", nil},
	} {
		var problems []string
		s, err := proxy.Configure("x.", c.in, func(path, format string, args ...any) {
			problems = append(problems, path+": "+fmt.Sprintf(format, args...))
		})
		all := strings.Join(problems, "\n")
		if !errors.Is(err, c.err) || (c.problem == "") != (all == "") || !strings.HasPrefix(all, c.problem) || strings.Contains(all, "geheim") {
			t.Errorf("%s: %q, %v", c.name, all, err)
		}
		via := ""
		if s.Choose != nil {
			if u, err := s.Choose(&url.URL{Scheme: "https", Host: "hub.example.com"}); err != nil {
				t.Errorf("%s: %v", c.name, err)
			} else if u != nil {
				via = u.String()
			}
		}
		if via != c.via {
			t.Errorf("%s: by %q, not %q", c.name, via, c.via)
		}
	}
	one, _ := proxy.Configure("x.", proxy.Named{Proxy: "none"}, nil)
	two, _ := proxy.Configure("x.", proxy.Named{}, nil)
	if !one.Same(one) || one.Same(two) {
		t.Error("settings are compared wrongly")
	}
}
