// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// The networks of a configuration.
const (
	// Cluster is where nodes, pods and services are.
	Cluster = "cluster"
	// ControlPlane is where webhooks with a URL and authentication are asked; master is its old name.
	ControlPlane = "controlplane"
	// Etcd is where kube-apiserver's store is.
	Etcd = "etcd"
	// direct is a network of the KEP's draft.
	direct = "direct"
)

// Values of the labels of kube-apiserver's metrics, and direct, of which it has none.
const (
	protocolConnect = "http_connect"
	protocolGRPC    = "grpc"
	protocolDirect  = "direct"
	transportTCP    = "tcp"
	transportUDS    = "uds"
)

// configuration is EgressSelectorConfiguration of apiserver.k8s.io, and of the KEP's draft.
type configuration struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Selections []selection `json:"egressSelections"`
}

type selection struct {
	Name       string     `json:"name"`
	Connection connection `json:"connection"`
}

type connection struct {
	ProxyProtocol string     `json:"proxyProtocol"`
	Transport     *transport `json:"transport"`
	// The rest is the draft's.
	Type           string `json:"type"`
	URL            string `json:"url"`
	CABundle       string `json:"caBundle"`
	ClientKeyFile  string `json:"clientKeyFile"`
	ClientCertFile string `json:"clientCertFile"`
}

type transport struct {
	TCP *tcpTransport `json:"tcp"`
	UDS *udsTransport `json:"uds"`
}

type tcpTransport struct {
	URL       string     `json:"url"`
	TLSConfig *tlsConfig `json:"tlsConfig"`
}

type tlsConfig struct {
	CABundle      string `json:"caBundle"`
	ClientKey     string `json:"clientKey"`
	ClientCert    string `json:"clientCert"`
	TLSServerName string `json:"tlsServerName"`
}

type udsTransport struct {
	UDSName string `json:"udsName"`
}

// route is how a network is reached.
type route struct {
	protocol, transport string
	address             string    // of a socket, or host:port
	tls                 tlsConfig // of transportTCP
	at                  string    // field path of tls
}

// networkOf is the network of a name in any case, "" of an unknown one.
func networkOf(name string) string {
	switch name = strings.ToLower(name); name {
	case Cluster, ControlPlane, Etcd, direct:
		return name
	case "master":
		return ControlPlane
	}
	return ""
}

// parse reads a configuration. The routes are usable only if the document has no problems.
func parse(file string, data []byte) (map[string]route, *conf.Document) {
	var c configuration
	doc := conf.Decode(file, data, &c)
	if doc.Unread() {
		return nil, doc
	}
	draft := c.APIVersion == "apiserver.k8s.io/v1alpha1"
	if !draft && c.APIVersion != "apiserver.k8s.io/v1beta1" {
		doc.Add("apiVersion", "apiserver.k8s.io/v1beta1 or apiserver.k8s.io/v1alpha1 is expected, not %q", c.APIVersion)
	}
	doc.Want("kind", "EgressSelectorConfiguration", c.Kind)
	routes := map[string]route{}
	for i, s := range c.Selections {
		at := "egressSelections[" + strconv.Itoa(i) + "]"
		r := reader{add: doc.Add, at: at + ".connection"}
		isDraft := doc.Stands(r.at + ".type")
		network := networkOf(s.Name)
		_, twice := routes[network]
		switch {
		case network == "" || network == direct && !isDraft:
			doc.Add(at+".name", "there is no network %q%s known are cluster, controlplane (or master) and etcd", s.Name,
				near(s.Name))
		case twice:
			doc.Add(at+".name", "the network %s stands twice", network)
		}
		if isDraft && !draft {
			doc.Add(r.at+".type", "this is a field of the draft, which is apiserver.k8s.io/v1alpha1: write proxyProtocol")
			continue
		}
		if isDraft {
			routes[network] = r.draft(s.Connection)
		} else {
			routes[network] = r.shipped(s.Connection)
		}
	}
	return routes, doc
}

func near(name string) string {
	if meant := conf.Meant(strings.ToLower(name), Cluster, ControlPlane, Etcd); meant != "" {
		return meant
	}
	return ":"
}

// reader reads one connection, at a field path.
type reader struct {
	add func(path, format string, args ...any)
	at  string
}

func (r reader) shipped(c connection) (out route) {
	for _, f := range []struct{ name, value string }{
		{"url", c.URL}, {"caBundle", c.CABundle}, {"clientKeyFile", c.ClientKeyFile}, {"clientCertFile", c.ClientCertFile},
	} {
		if f.value != "" {
			r.add(r.at+"."+f.name, "this is a field of the draft, which has type: write transport")
		}
	}
	at := r.at + ".transport"
	switch c.ProxyProtocol {
	case "Direct":
		if c.Transport != nil {
			r.add(at, "Direct has no transport")
		}
		return route{protocol: protocolDirect}
	case "GRPC":
		out.protocol = protocolGRPC
	case "HTTPConnect":
		out.protocol = protocolConnect
	default:
		r.add(r.at+".proxyProtocol", "Direct, GRPC or HTTPConnect is expected, not %q", c.ProxyProtocol)
		return out
	}
	switch t := c.Transport; {
	case t == nil || t.TCP == nil && t.UDS == nil:
		r.add(at, "%s needs uds, or tcp (HTTPConnect)", c.ProxyProtocol)
	case t.TCP != nil && out.protocol == protocolGRPC:
		r.add(at+".tcp", "kube-apiserver takes GRPC over uds alone; for TCP write the draft's form, type: grpc and url")
	case t.TCP != nil && t.UDS != nil:
		r.add(at+".tcp", "tcp and uds stand both: one is expected")
	case t.UDS != nil:
		out.transport, out.address = transportUDS, t.UDS.UDSName
		if t.UDS.UDSName == "" {
			r.add(at+".uds.udsName", "the path of a unix socket is missing")
		}
	default:
		out.transport = transportTCP
		out.address = r.host(at+".tcp.url", "https", t.TCP.URL)
		out.at = at + ".tcp.tlsConfig"
		if t.TCP.TLSConfig == nil {
			r.add(out.at, "https needs a client certificate: clientCert and clientKey")
			return out
		}
		out.tls = *t.TCP.TLSConfig
		r.needs(out.at+".clientCert", out.tls.ClientCert)
		r.needs(out.at+".clientKey", out.tls.ClientKey)
	}
	return out
}

// draft reads the form of the KEP's text.
func (r reader) draft(c connection) (out route) {
	if c.ProxyProtocol != "" || c.Transport != nil {
		r.add(r.at+".type", "type is the draft's form, proxyProtocol and transport are another: write one of both")
	}
	scheme := "grpc"
	switch strings.ToLower(c.Type) {
	case "direct":
		if c.URL != "" {
			r.add(r.at+".url", "direct has no url")
		}
		return route{protocol: protocolDirect}
	case "grpc":
		out.protocol = protocolGRPC
	case "http-connect", "httpconnect":
		out.protocol, scheme = protocolConnect, "https"
	default:
		r.add(r.at+".type", "direct, grpc or http-connect is expected, not %q", c.Type)
		return out
	}
	out.transport, out.at = transportTCP, r.at
	out.address = r.host(r.at+".url", scheme, c.URL)
	out.tls = tlsConfig{CABundle: c.CABundle, ClientKey: c.ClientKeyFile, ClientCert: c.ClientCertFile}
	r.needs(r.at+".clientCertFile", c.ClientCertFile)
	r.needs(r.at+".clientKeyFile", c.ClientKeyFile)
	return out
}

func (r reader) needs(at, file string) {
	if file == "" {
		r.add(at, "the path of a file is missing: what is served here wants to know who calls")
	}
}

// host is the host:port of a URL, which has nothing else.
func (r reader) host(at, scheme, text string) string {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.Scheme == "http" && scheme == "https":
		r.add(at, "http is not dialled, nor is it by kube-apiserver: whoever listens would read and say everything; "+
			"write https, or uds")
		return ""
	case err != nil || u.Scheme != scheme || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" ||
		u.Fragment != "" || u.Opaque != "":
		r.add(at, "%s://HOST:PORT is expected", scheme)
		return ""
	}
	host, port, err := net.SplitHostPort(u.Host)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
		r.add(at, "%s://HOST:PORT is expected, with a port from 1 to 65535", scheme)
		return ""
	}
	return u.Host
}

// problems are those of a document as a fault.
func problems(doc *conf.Document) error {
	if err := doc.Err(); err != nil {
		return fault.From(err).Hint("correct the lines named; 'tombolo egress-config' writes such a file")
	}
	return nil
}
