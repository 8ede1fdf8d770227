// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// CreateCA makes a CA for several services in a folder that has none, and gives
// its pin.
func CreateCA(dir string) (pin string, err error) {
	for _, name := range []string{caFile, caKeyFile} {
		switch _, err := os.Lstat(filepath.Join(dir, name)); {
		case err == nil:
			return "", fault.New(fault.CodeUsage, "no CA is made in "+dir).Whyf("%s exists already", name).
				Hint("use the one that is there, or another folder")
		case !errors.Is(err, fs.ErrNotExist):
			return "", unusableDir(dir, err)
		}
	}
	ca, err := makeCA(dir, time.Now())
	if err != nil {
		return "", err
	}
	return trust.Pin(ca.Certificate()), nil
}

// checkShared wants the CA to be there already where several services may share a
// store: members call them by one name, and each would make a CA of its own.
func checkShared(cfg Config) error {
	if cfg.Etcd == nil || cfg.TLS != TLSSelf {
		return nil
	}
	for _, name := range []string{caFile, caKeyFile} {
		if _, err := os.Stat(filepath.Join(cfg.StateDir, name)); err != nil {
			return fault.New(fault.CodeConfig, "this service makes no CA of its own").
				Whyf("its members are in etcd, where several services share them, and each would have another CA: %v", err).
				Hint("make one with 'tombolo discovery ca create DIR', and put %s and %s into %s of each service; "+
					"or set tls.certFile and tls.keyFile, or tls.none behind a proxy",
					caFile, caKeyFile, cfg.StateDir)
		}
	}
	return nil
}
