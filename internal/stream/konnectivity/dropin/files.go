// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// Files are a certificate with its key and a CA on disk. They are read again when they have changed: the reference
// reads them once, and has to be restarted when they are rotated.
type Files struct {
	Cert, Key, CA string // CA may be empty
	Edit          func(*tls.Config)

	mu     sync.Mutex
	stamps [3]stamp
	config *tls.Config
}

type stamp struct {
	size int64
	at   time.Time
}

func (f *Files) stamp() (out [3]stamp) {
	for i, path := range []string{f.Cert, f.Key, f.CA} {
		if info, err := os.Stat(path); path != "" && err == nil {
			out[i] = stamp{info.Size(), info.ModTime()}
		}
	}
	return out
}

// load reads the files if they have changed. What cannot be read leaves the last good ones in force.
func (f *Files) load() (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.stamp()
	if f.config != nil && now == f.stamps {
		return f.config, nil
	}
	fresh, err := f.read()
	if err != nil && f.config == nil {
		return nil, err
	}
	if err == nil {
		f.config, f.stamps = fresh, now
	}
	return f.config, nil
}

func (f *Files) read() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, unusable(f.Cert, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		pem, err := private.ReadPublic(f.CA, limit.PrivateFile)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = errors.New("it has no certificate in PEM")
		}
		if err != nil {
			return nil, unusable(f.CA, err)
		}
		c.RootCAs, c.ClientCAs, c.ClientAuth = pool, pool, tls.RequireAndVerifyClientCert
	}
	if f.Edit != nil {
		f.Edit(c)
	}
	return c, nil
}

func unusable(path string, err error) error {
	f := fault.Newf(fault.CodeConfig, "%s cannot be used", path).Because(err)
	if errors.Is(err, fs.ErrNotExist) {
		return f.Hint("name a file that is there")
	}
	return f.Hint("write a certificate and its key in PEM")
}

// Server is the TLS of a port.
func (f *Files) Server(protocols ...string) (*tls.Config, error) {
	if _, err := f.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := f.load()
			if err != nil {
				return nil, err
			}
			c = c.Clone()
			c.NextProtos = protocols
			return c, nil
		},
	}, nil
}

// Client is the TLS of a connection that is about to be made.
func (f *Files) Client() (*tls.Config, error) {
	c, err := f.load()
	if err != nil {
		return nil, err
	}
	c = c.Clone()
	c.ClientAuth, c.ClientCAs = tls.NoClientCert, nil
	return c, nil
}
