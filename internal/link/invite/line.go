// SPDX-License-Identifier: Apache-2.0

package invite

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// Line is what a cluster needs to be linked once: where the host cluster is, and a token for one join.
type Line struct {
	Cluster    string
	Server     string    // URL of the host's API server
	ServerName string    // in its certificate; empty: the host of Server
	CA         []byte    // PEM; empty: the CAs of the system
	Proxy      string    // URL of the proxy through which it is reached; empty: none
	Token      string    // bearer token of the account for the join
	Expires    time.Time // when the token ends; seconds
}

// String shows nothing: a line is a credential.
func (Line) String() string { return "(join line)" }

// The form of a line: the scheme, then in base64url without padding a checksum of 4 bytes and seven fields, each behind
// its length as a uvarint.
const (
	scheme   = "tombolo-link://"
	version  = "v1/"
	checksum = 4
	// MostLine bounds a line in bytes.
	MostLine = 24 << 10
	mostText = 4 << 10 // of a field but the CA
)

// Encode gives the line that ParseLine reads, or says why there is none.
func (l Line) Encode() (string, error) {
	ca, err := derOf(l.CA)
	if err != nil {
		return "", err
	}
	l.CA = pemOf(ca)
	if why := l.wrong(); why != "" {
		return "", fault.Newf(fault.CodeConfig, "a join line for %q cannot be made", l.Cluster).Whyf("%s", why).
			Hint("correct --server, --tls-server-name and --proxy-url, or name another kubeconfig")
	}
	var body []byte
	for _, field := range [][]byte{[]byte(l.Cluster), []byte(l.Server), []byte(l.ServerName), []byte(l.Proxy),
		[]byte(strconv.FormatInt(l.Expires.Unix(), 10)), []byte(l.Token), bytes.Join(ca, nil)} {
		body = append(binary.AppendUvarint(body, uint64(len(field))), field...)
	}
	sum := sha256.Sum256(body)
	out := scheme + version + base64.RawURLEncoding.EncodeToString(append(sum[:checksum:checksum], body...))
	if len(out) > MostLine {
		return "", fault.Newf(fault.CodeConfig, "a join line for %q cannot be made", l.Cluster).
			Whyf("it would have %d bytes, and %d are allowed", len(out), MostLine).
			Hint("name a kubeconfig with fewer certificates in certificate-authority")
	}
	return out, nil
}

// ParseLine reads a line; white space around it, and where a terminal broke it, does not count. Its errors show nothing
// of the text.
func ParseLine(text string) (Line, error) {
	damaged := func(why string) (Line, error) {
		return Line{}, fault.New(fault.CodeJoinLine, "the join line cannot be used").Whyf("%s", why).
			Hint("copy the whole line again, or make another one at the host cluster: tombolo link token CLUSTER")
	}
	if len(text) > MostLine {
		return damaged("it has more than " + strconv.Itoa(MostLine) + " bytes")
	}
	text = strings.Join(strings.Fields(text), "")
	rest, ok := strings.CutPrefix(text, scheme)
	if !ok {
		return damaged("it does not begin with " + scheme)
	}
	if rest, ok = strings.CutPrefix(rest, version); !ok {
		return damaged("it is of another version of Tombolo")
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(body) < checksum {
		return damaged("a part of it is missing, or other signs are in it")
	}
	if sum := sha256.Sum256(body[checksum:]); !bytes.Equal(sum[:checksum], body[:checksum]) {
		return damaged("a part of it is missing or changed")
	}
	fields, ok := split(body[checksum:], 7)
	if !ok {
		return damaged("its fields are not those of a join line")
	}
	seconds, err := strconv.ParseInt(string(fields[4]), 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<40 {
		return damaged("its time is none")
	}
	certs, err := x509.ParseCertificates(fields[6])
	if err != nil {
		return damaged("its certificate is none")
	}
	var ca [][]byte
	for _, c := range certs {
		ca = append(ca, c.Raw)
	}
	out := Line{string(fields[0]), string(fields[1]), string(fields[2]), pemOf(ca), string(fields[3]), string(fields[5]),
		time.Unix(seconds, 0).UTC()}
	if why := out.wrong(); why != "" {
		return damaged(why)
	}
	return out, nil
}

// split reads n fields, and no more.
func split(body []byte, n int) (out [][]byte, ok bool) {
	for range n {
		size, used := binary.Uvarint(body)
		if used <= 0 || size > uint64(len(body)-used) {
			return nil, false
		}
		out, body = append(out, body[used:used+int(size)]), body[used+int(size):]
	}
	return out, len(body) == 0
}

// wrong says which field is none. It is the same for what is written and what is read.
func (l Line) wrong() string {
	if _, err := id.ParseCluster(l.Cluster); err != nil {
		return "it names no cluster"
	}
	for _, s := range []string{l.Server, l.ServerName, l.Proxy, l.Token} {
		if len(s) > mostText || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return "a field is too long, or has other signs than it may"
		}
	}
	switch {
	case !IsServer(l.Server):
		return "the host's API server is no https URL"
	case l.Proxy != "" && !isURL(l.Proxy, "http", "https", "socks5"):
		return "the proxy is no URL that begins with http, https or socks5"
	case l.Token == "":
		return "there is no token"
	}
	return ""
}

// IsServer reports whether a text is the URL of an API server.
func IsServer(text string) bool { return isURL(text, "https") }

// ServerName is the name that is looked for in the certificate of an API server: what is said, or the host of its URL.
func ServerName(said, server string) string {
	if u, err := url.Parse(server); said == "" && err == nil {
		return u.Hostname()
	}
	return said
}

func isURL(text string, schemes ...string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && u.RawQuery == "" && u.Fragment == "" &&
		slices.Contains(schemes, u.Scheme) && (u.User == nil || u.Scheme != "https" || len(schemes) > 1)
}

// derOf reads the certificates of a PEM file.
func derOf(text []byte) (out [][]byte, err error) {
	bad := func(why string) ([][]byte, error) {
		return nil, fault.New(fault.CodeConfig, "the CA of the host's API server cannot be used").Whyf("%s", why).
			Hint("correct certificate-authority of the kubeconfig")
	}
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		block, after := pem.Decode(rest)
		if block == nil {
			return bad("it is not PEM")
		}
		if rest = after; block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return bad("a certificate cannot be read")
		}
		out = append(out, block.Bytes)
	}
	if len(out) == 0 && len(text) > 0 {
		return bad("there is no certificate in it")
	}
	return out, nil
}

func pemOf(certs [][]byte) (out []byte) {
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c})...)
	}
	return out
}
