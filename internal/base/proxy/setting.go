// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// Setting is the proxy setting of a configuration.
type Setting struct {
	Choose Choose // nil: none is used
	text   string
}

// Same reports whether two settings are equal.
func (s Setting) Same(o Setting) bool { return s.text == o.text }

// Named has the fields of a configuration for a proxy.
type Named struct {
	Proxy string // none, environment or nothing, or a URL
	File  string // a file with the URL instead
	// Read reads a private file; nil: the file is not read.
	Read func(file string) (string, error)
}

// Configure validates the fields proxy and proxyFile below at, a path that ends in a dot.
// The error is that of reading the file.
func Configure(at string, n Named, add conf.Report) (Setting, error) {
	s := Setting{text: n.Proxy}
	if n.File != "" {
		if n.Proxy != "" {
			add(at+"proxyFile", "proxy stands there too: give one of them")
		}
		if n.Read == nil {
			return s, nil
		}
		secret, err := n.Read(n.File)
		if err != nil {
			return s, err
		}
		s.text = strings.TrimSpace(secret)
	}
	switch s.text {
	case "none":
	case "", "environment":
		s.Choose = httpproxy.FromEnvironment().ProxyFunc()
	default:
		u, err := parse(s.text)
		if err != nil {
			add(at+"proxy", "%v", err)
			return s, nil
		}
		s.Choose = func(*url.URL) (*url.URL, error) { return u, nil }
	}
	return s, nil
}

// parse parses the URL of a proxy. Its error does not quote it: it may contain a password.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("http://host:port or https://host:port is expected, " +
			"with user:password@ before the host if need be")
	}
	return u, nil
}
