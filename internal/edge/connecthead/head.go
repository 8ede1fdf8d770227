// SPDX-License-Identifier: Apache-2.0

// Package connecthead reads the head of a request on a CONNECT port of the edge: byte
// by byte, because whatever is left to taste here, the server behind may taste
// otherwise (RFC 9112 section 11.2). It routes nothing and answers nothing.
package connecthead

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
)

// Most is how many bytes a head may have.
const Most = 16 << 10

// The headers that name a destination: what vpn-shoot sent up to Gardener 1.144, and what it and the
// apiserver-proxy send since (GEP-14, GEP-30).
const (
	HeaderReversedVPN = "Reversed-VPN"
	HeaderDestination = "X-Gardener-Destination"
)

// Head is the head of a request that is well-formed.
type Head struct {
	Method string
	Target string // as sent; of a CONNECT host:port
	Host   string // of the target if that has one, else of the Host header; without a port; empty: none
	Path   string // of the target, with its query; empty: that of a CONNECT, or of *
	Header string // the name of the one header that names a destination; empty: there is none
	Value  string // of that header, as sent
	Size   int    // bytes of the head
}

// Connect reports whether it asks for a tunnel.
func (h Head) Connect() bool { return h.Method == "CONNECT" }

// Parse reads what a connection begins with; not done: more bytes are needed. Errors are
// faults: header_too_large or request_malformed.
func Parse(b []byte) (h Head, done bool, err error) {
	if len(b) > 0 && (b[0] < 'A' || b[0] > 'Z') {
		return Head{}, false, malformed("it does not begin with a method")
	}
	end := bytes.Index(b[:min(len(b), Most)], []byte("\r\n\r\n"))
	switch {
	case end < 0 && len(b) >= Most:
		return Head{}, false, fault.New(fault.CodeHeaderTooLarge, "the request header is too large").
			Whyf("at most %d bytes are read", Most)
	case end < 0:
		return Head{}, false, nil
	}
	h.Size = end + 4
	first, rest, _ := strings.Cut(string(b[:end])+"\r\n", "\r\n")
	minor, err := h.request(first)
	if err != nil {
		return Head{}, false, err
	}
	hosts := 0
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\r\n")
		name, value, err := field(line)
		if err != nil {
			return Head{}, false, err
		}
		switch {
		case strings.EqualFold(name, "Host"):
			if hosts++; hosts > 1 {
				return Head{}, false, malformed("there are two Host headers")
			}
			err = h.host(value)
		case strings.EqualFold(name, HeaderReversedVPN), strings.EqualFold(name, HeaderDestination):
			if h.Header != "" {
				return Head{}, false, malformed("there are two headers that name a destination")
			}
			h.Header, h.Value = name, value
			if value == "" {
				err = malformed("%s is empty", name)
			}
		case h.Connect() && (strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Transfer-Encoding")):
			err = malformed("a CONNECT has no body") // RFC 9110 section 9.3.6
		}
		if err != nil {
			return Head{}, false, err
		}
	}
	if minor == 1 && hosts == 0 {
		return Head{}, false, malformed("there is no Host header") // RFC 9112 section 3.2
	}
	return h, true, nil
}

// request reads the request line (RFC 9112 section 3).
func (h *Head) request(line string) (minor int, err error) {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	if !ok || !token(method) || target == "" || strings.ContainsFunc(target, odd) {
		return 0, malformed("the request line is not METHOD TARGET HTTP/1.x")
	}
	switch version {
	case "HTTP/1.0":
	case "HTTP/1.1":
		minor = 1
	default:
		return 0, malformed("the version is neither HTTP/1.0 nor HTTP/1.1")
	}
	h.Method, h.Target = method, target
	switch {
	case h.Connect():
		host, port, ok := splitPort(target)
		if !ok || port == "" {
			return 0, malformed("the target of the CONNECT is not host:port")
		}
		h.Host = host
	case target[0] == '/':
		h.Path = target
	case target != "*":
		return minor, h.absolute(target)
	}
	return minor, nil
}

// absolute reads a target in absolute form, whose host counts and not that of the Host header (RFC 9112 section
// 3.2.2). It has no user: what a person sees there is not where the request goes.
func (h *Head) absolute(target string) error {
	scheme, rest, _ := strings.Cut(target, "://")
	if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return malformed("the target is neither a path nor an http URI")
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, h.Path = rest[:i], rest[i:]
	}
	host, _, ok := splitPort(authority)
	if !ok {
		return malformed("the target names no host")
	}
	if !strings.HasPrefix(h.Path, "/") {
		h.Path = "/" + h.Path
	}
	h.Host = host
	return nil
}

// host reads a Host header. That of a CONNECT says what its target says, maybe without
// the port (RFC 9112 section 3.2).
func (h *Head) host(value string) error {
	host, port, ok := splitPort(value)
	if !ok {
		return malformed("the Host header is not host[:port]")
	}
	if h.Connect() {
		if _, asked, _ := splitPort(h.Target); host != h.Host || port != "" && port != asked {
			return malformed("the Host header and the target of the CONNECT differ")
		}
	}
	if h.Host == "" {
		h.Host = host
	}
	return nil
}

// splitPort reads host[:port]. The host comes out in lower case, an IPv6 address without brackets.
func splitPort(s string) (host, port string, ok bool) {
	host = s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return "", "", false
		}
	}
	if inner, v6 := strings.CutPrefix(host, "["); v6 {
		inner, closed := strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return a.String(), port, closed && err == nil && a.Is6() && a.Zone() == ""
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.String(), port, a.Is4()
	}
	name, err := hostname.Parse(host)
	return name, port, err == nil
}

// field reads a header line (RFC 9112 section 5). No space before the colon, no folded lines.
func field(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !token(name) {
		return "", "", malformed("a header line is not NAME: VALUE")
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", "", malformed("a header has a control character")
		}
	}
	return name, strings.Trim(value, " \t"), nil
}

// token is RFC 9110 section 5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func malformed(format string, args ...any) *fault.Fault {
	return fault.New(fault.CodeRequest, "the request is malformed").Whyf(format, args...)
}
