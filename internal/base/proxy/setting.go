// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// Setting is a proxy as a configuration names it.
type Setting struct {
	Choose Choose // nil: none is used
	text   string
}

// Same reports whether two settings say the same.
func (s Setting) Same(o Setting) bool { return s.text == o.text }

// Named is what a configuration says of a proxy.
type Named struct {
	Proxy string // none, environment or nothing, or a URL
	File  string // holds the URL instead
	// Read reads a file that others cannot read; nil: it is left unread.
	Read func(file string) (string, error)
}

// Configure reads the fields proxy and proxyFile of what stands at a place, which ends in
// a dot. The error is that of the file.
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

// parse reads the URL of a proxy. Its error shows none of it: there may be a password
// within.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("http://host:port or https://host:port is expected, " +
			"with user:password@ before the host if need be")
	}
	return u, nil
}
