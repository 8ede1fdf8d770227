// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// The files of our own CA, in the state directory.
const (
	caFile    = "ca.crt"
	caKeyFile = "ca.key"
)

// certificates keeps the one that callers are shown: of files, which are read
// again once they have changed, or of our own CA, which makes a new one in
// half-time. A change that cannot be used leaves the last good one.
type certificates struct {
	own *own // nil: of files
	log *slog.Logger
	bad func(error)

	mu     sync.Mutex
	config *tls.Config
	until  time.Time // own: when to make another one
	looked time.Time
	stamps [2]stamp
}

// own makes certificates by a CA of this service.
type own struct {
	ca    *trust.Authority
	name  string
	hosts []string
}

// stamp tells whether a file has changed; following links, as Secrets need.
type stamp struct {
	size int64
	at   time.Time
	real string
}

func stampOf(file string) (s stamp) {
	if info, err := os.Stat(file); err == nil {
		s.size, s.at = info.Size(), info.ModTime()
		s.real, _ = filepath.EvalSymlinks(file)
	}
	return s
}

// openCertificates gets the first one, or says why there is none.
func openCertificates(cfg Config, log *slog.Logger, bad func(error)) (*certificates, error) {
	c := &certificates{log: log, bad: bad}
	now := time.Now()
	switch cfg.TLS {
	case TLSNone:
		return nil, nil
	case TLSSelf:
		ca, err := openCA(cfg.StateDir, now)
		if err != nil {
			return nil, err
		}
		c.own = &own{ca: ca, name: cfg.Name, hosts: named(cfg.Hosts, cfg.Listen)}
		return c, c.issue(now)
	}
	c.looked, c.stamps = now, stampsOf(cfg.Reloadable)
	config, err := readPair(cfg.certFile, cfg.keyFile)
	c.config = config
	return c, err
}

func stampsOf(r Reloadable) [2]stamp { return [2]stamp{stampOf(r.certFile), stampOf(r.keyFile)} }

// get is the TLS of the main port, as it is now.
func (c *certificates) get(now time.Time, r Reloadable) *tls.Config {
	c.mu.Lock()
	due := now.Sub(c.looked) >= discoveryStamp || now.Before(c.looked)
	c.mu.Unlock()
	if due {
		c.look(now, r, false)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config
}

// look takes over what has changed, and at a reload whatever there is.
func (c *certificates) look(now time.Time, r Reloadable, reload bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = now
	if c.own != nil {
		if now.Before(c.until) && !now.Before(c.config.Certificates[0].Leaf.NotBefore) {
			return // else it is time, or the clock went back to before it begins
		}
		if err := c.issue(now); err != nil {
			c.fail(err)
		}
		return
	}
	stamps := stampsOf(r)
	if stamps == c.stamps && !reload {
		return
	}
	c.stamps = stamps
	config, err := readPair(r.certFile, r.keyFile)
	if err != nil {
		c.fail(err)
		return
	}
	c.config = config
	c.log.Info("certificate loaded", "file", r.certFile)
}

func (c *certificates) fail(err error) {
	c.bad(err)
	f := fault.From(err)
	c.log.Error("the new certificate is refused; the last good one stays", telemetry.AttrCode, f.Code,
		telemetry.AttrReason, f.Error())
}

// issue makes a certificate by our own CA. Its key stays in memory, and the CA is
// sent along for members that know only its pin.
func (c *certificates) issue(now time.Time) error {
	key, err := trust.NewKey()
	if err != nil {
		return err
	}
	leaf, err := c.own.ca.Issue(trust.Request{
		Identity: id.Identity{Role: id.RoleDiscovery, Name: c.own.name}, Key: key.Public(),
		Life: discoveryCertificate, Hosts: c.own.hosts,
	}, now)
	if err != nil {
		return err
	}
	c.config = serverTLS(tls.Certificate{Certificate: [][]byte{leaf.Raw, c.own.ca.Certificate().Raw}, PrivateKey: key,
		Leaf: leaf})
	c.until = leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
	return nil
}

// serverTLS asks for no client certificate: members prove themselves within.
// TLS 1.2 is there for what members have in front of them.
func serverTLS(cert tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{alpnHTTP1, alpnHTTP2},
		Certificates: []tls.Certificate{cert}}
}

// readPair reads a certificate and its key. It says nothing of the key's content.
func readPair(certFile, keyFile string) (*tls.Config, error) {
	bad := func(err error) error {
		return fault.New(fault.CodeCertInvalid, "the certificate "+certFile+" with the key "+keyFile+" cannot be used").
			Because(err).
			Hint("correct tls.certFile and tls.keyFile: PEM, the leaf first, and the key that belongs to it")
	}
	cert, err := private.Pair(certFile, keyFile)
	if fault.Has(err, fault.CodeSecret) {
		return nil, err
	}
	if err != nil {
		return nil, bad(err)
	}
	if !slices.ContainsFunc(cert.Leaf.ExtKeyUsage, func(u x509.ExtKeyUsage) bool {
		return u == x509.ExtKeyUsageServerAuth || u == x509.ExtKeyUsageAny
	}) && len(cert.Leaf.ExtKeyUsage) > 0 {
		return nil, bad(errors.New("the certificate is not for a server (extended key usage)"))
	}
	if now := time.Now(); now.After(cert.Leaf.NotAfter) {
		return nil, bad(errors.New("the certificate ended at " + cert.Leaf.NotAfter.UTC().Format(time.RFC3339)))
	}
	return serverTLS(cert), nil
}

// openCA reads the CA of a state directory, or makes it.
func openCA(dir string, now time.Time) (*trust.Authority, error) {
	cert, certErr := private.ReadPublic(filepath.Join(dir, caFile), limit.PrivateFile)
	key, keyErr := private.ReadState(filepath.Join(dir, caKeyFile), limit.PrivateFile)
	if fault.Has(keyErr, fault.CodeSecret) {
		return nil, keyErr
	}
	switch err := errors.Join(certErr, keyErr); {
	case err == nil:
		ca, err := trust.ParseAuthority(cert, key)
		if err != nil {
			return nil, fault.New(fault.CodeStateCorrupt, "the CA in "+dir+" cannot be read").Because(err).
				Hint("bring %s and %s back from a backup; or remove both, and give members the new CA", caFile, caKeyFile)
		}
		return ca, nil
	case errors.Is(keyErr, fs.ErrNotExist):
		// The key is written last: without it the CA has never been shown.
		return makeCA(dir, now)
	default:
		return nil, unusableDir(dir, err)
	}
}

func makeCA(dir string, now time.Time) (*trust.Authority, error) {
	ca, err := trust.NewAuthority(id.DefaultTrustDomain, now)
	if err != nil {
		return nil, err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusableDir(dir, err)
	}
	for _, f := range []struct {
		name string
		data []byte
		mode fs.FileMode
	}{{caFile, ca.CertificatePEM(), 0o644}, {caKeyFile, key, 0o600}} {
		if err := writeFile(folder(dir), f.name, f.data, f.mode); err != nil {
			return nil, unusableDir(dir, err)
		}
	}
	return ca, nil
}

// writeFile puts a file in its place once it is on the disk.
func writeFile(d folder, name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(d.path(name+".new"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.Rename(name+".new", name); err != nil {
		return err
	}
	return d.Sync()
}

func unusableDir(dir string, err error) error {
	return fault.New(fault.CodeStateAccess, "the state directory "+dir+" cannot be used").Because(err).
		Hint("create it for this user (uid %d), or choose another with --state-dir", os.Getuid())
}

// named is hosts with the one at which the service listens, if that is said: an
// address that no interface has yet, or a name, is how members call it.
func named(hosts []string, listen string) []string {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "" {
		return hosts
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.IsUnspecified() || a.IsLinkLocalUnicast() {
			return hosts
		}
		host = a.Unmap().String()
	} else if !isName(host) {
		return hosts
	}
	if slices.Contains(hosts, host) {
		return hosts
	}
	return append(slices.Clone(hosts), host)
}

// hostsHere are the names and addresses by which others may reach this machine.
func hostsHere() []string {
	hosts := []string{"localhost"}
	if name, err := os.Hostname(); err == nil && name != "localhost" {
		hosts = append(hosts, name)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return hosts
	}
	for _, a := range addrs {
		ip, _, _ := strings.Cut(a.String(), "/")
		if at, err := netip.ParseAddr(ip); err == nil && !at.IsLinkLocalUnicast() {
			hosts = append(hosts, at.Unmap().String())
		}
	}
	return hosts
}
