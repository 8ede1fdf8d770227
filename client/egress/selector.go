// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/client/internal/pemfiles"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// ErrUnknownNetwork is the cause of the error of Dialer for a name that is none of a network.
var ErrUnknownNetwork = errors.New("unknown network")

// Selector has the dialers of a configuration. Its fields are what all of them say and tell; they must not change once
// a dialer is in use. A Selector is safe for concurrent use, and must not be copied.
type Selector struct {
	// Metadata are pairs that a hub writes into its audit records, as client.Dialer.Metadata; client.WithMetadata adds
	// to them.
	Metadata map[string]string
	// Header are headers of a CONNECT, or the metadata of a gRPC stream, for what serves it; their names begin with X-.
	// client.WithHeader adds to them.
	Header map[string]string
	// Trace, if set, returns the W3C traceparent and tracestate of a dial from its context, unless client.WithTrace
	// has set them.
	Trace func(ctx context.Context) (traceparent, tracestate string)
	// Observe, if set, is called at the start of each dial, for metrics and spans. Package egressmetrics has
	// kube-apiserver's metrics.
	Observe Observer
	// Timeout bounds a dial in addition to its context; 0 is 40s, and 30s of a direct one.
	Timeout time.Duration

	ways map[string]*way
}

// Observer sees a dial begin. The dial has the context that it returns, and calls done at its end.
type Observer func(ctx context.Context, d Dial) (of context.Context, done func(Stage, error))

// Dial is a dial as an observer sees it.
type Dial struct {
	// Network is Cluster, ControlPlane, Etcd or direct.
	Network string
	// Protocol is http_connect, grpc or direct; Transport is tcp or uds.
	Protocol, Transport string
	// Address is the target, host:port.
	Address string
}

// Stage is where a dial has failed, empty of one that has not.
type Stage string

// The stages.
const (
	// StageConnect is the way to the proxy, or to the target of a direct dial.
	StageConnect Stage = "connect"
	// StageProxy is what the proxy was asked.
	StageProxy Stage = "proxy"
)

// way is a route with the files that it needs.
type way struct {
	route
	files pemfiles.Files
}

// Load reads a configuration from a file. Its errors name the lines and fields. Certificates that it refers to are read
// too, and again once their files have changed.
func Load(file string) (*Selector, error) {
	data, err := private.ReadPublic(file, limit.ConfigFile)
	if err != nil {
		return nil, asError(fault.New(fault.CodeConfig, "the egress configuration cannot be read").Because(err))
	}
	routes, doc := parse(file, data)
	s, readable := &Selector{ways: map[string]*way{}}, problems(doc) == nil
	for network, r := range routes {
		w := &way{route: r}
		s.ways[network] = w
		if w.transport == transportTCP && readable {
			if _, err := w.config(); err != nil {
				doc.Add(w.at, "%v", fault.From(err))
			}
		}
	}
	if err := problems(doc); err != nil {
		return nil, asError(err)
	}
	return s, nil
}

// config is the present TLS configuration of a way with transportTCP.
func (w *way) config() (*tls.Config, error) {
	paths := []string{w.tls.ClientCert, w.tls.ClientKey}
	if w.tls.CABundle != "" {
		paths = append(paths, w.tls.CABundle)
	}
	return w.files.Config(w.load, paths...)
}

// load reads the files. What they say is judged as kube-apiserver does it.
func (w *way) load() (*tls.Config, error) {
	read := func(file string) (text []byte, err error) {
		if text, err = private.ReadPublic(file, limit.PrivateFile); err != nil {
			err = fault.New(fault.CodeCertInvalid, "a file cannot be read").Because(err)
		}
		return text, err
	}
	cert, err := read(w.tls.ClientCert)
	if err != nil {
		return nil, err
	}
	key, err := read(w.tls.ClientKey)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fault.Newf(fault.CodeCertInvalid, "%s and %s are no certificate with its key", w.tls.ClientCert,
			w.tls.ClientKey).Because(err)
	}
	host, _, err := net.SplitHostPort(w.address)
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "the address of the proxy cannot be read").Because(err)
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: host, Certificates: []tls.Certificate{pair},
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
	if w.tls.TLSServerName != "" {
		cfg.ServerName = w.tls.TLSServerName
	}
	if w.tls.CABundle != "" {
		text, err := read(w.tls.CABundle)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fault.Newf(fault.CodeCertInvalid, "%s has no certificate", w.tls.CABundle)
		}
	}
	return cfg, nil
}

// asError is a fault as the library reports it.
func asError(err error) *client.Error {
	f := fault.From(err)
	return &client.Error{Code: string(f.Code), Reason: f.Explain(), Err: err}
}
