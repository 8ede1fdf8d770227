// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Config says where etcd is and who we are there.
type Config struct {
	Endpoints    []string
	Prefix       string // of all keys
	CAFile       string // empty: the system's
	CertFile     string // client certificate
	KeyFile      string
	Username     string
	PasswordFile string
	Times        Times
	Await        bool                      // wait for Times.Settle also where the prefix is empty
	Log          *slog.Logger              // nil: none
	Tell         *telemetry.DiscoveryStore // nil: none
}

// Times are the waits; the zero value of a field is that of internal/base/limit.
type Times struct {
	Wait    time.Duration // for one answer
	Probe   time.Duration // between signs of life
	Silence time.Duration // after which etcd is away
	Retry   time.Duration // between tries while it is
	Settle  time.Duration // how long who begins without all of the state waits for members
}

func (t Times) filled() Times {
	for _, f := range []struct {
		at *time.Duration
		d  time.Duration
	}{
		{&t.Wait, discoveryStoreWait}, {&t.Probe, discoveryStoreProbe},
		{&t.Silence, discoveryStoreSilence}, {&t.Retry, limit.DiscoveryStoreRetry},
		{&t.Settle, limit.DiscoverySettle},
	} {
		if *f.at == 0 {
			*f.at = f.d
		}
	}
	return t
}

func invalid(what string) *fault.Fault { return fault.New(fault.CodeConfig, what) }

// prefix is without a slash at its end: what is below has one.
func (c Config) prefix() (string, error) {
	p := strings.TrimRight(c.Prefix, "/")
	if p == "" {
		return "", invalid("the prefix in etcd is empty").Hint("set store.etcd.prefix, such as /tombolo/discovery")
	}
	return p, nil
}

// client makes the client, which dials by itself when it is used.
func (c Config) client(ctx context.Context) (*clientv3.Client, error) {
	if len(c.Endpoints) == 0 {
		return nil, invalid("etcd has no endpoints").Hint("set store.etcd.endpoints, such as https://10.0.0.1:2379")
	}
	secure, err := c.tls()
	if err != nil {
		return nil, err
	}
	for _, e := range c.Endpoints {
		if strings.HasPrefix(e, "http://") && (c.CAFile != "" || c.CertFile != "" || c.Username != "") {
			return nil, invalid("the endpoint " + e + " of etcd is not encrypted").
				Whyf("there are a certificate or a password for it").Hint("write https://, or take them away")
		}
	}
	password, err := c.password()
	if err != nil {
		return nil, err
	}
	t := c.Times.filled()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: secure, Username: c.Username, Password: password,
		DialTimeout: t.Wait, DialKeepAliveTime: t.Silence, DialKeepAliveTimeout: t.Wait,
		Context: context.WithoutCancel(ctx), Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, c.unreachable(err)
	}
	return client, nil
}

func (c Config) tls() (*tls.Config, error) {
	if c.CAFile == "" && c.CertFile == "" && c.KeyFile == "" {
		return nil, nil
	}
	bad := func(what string) *fault.Fault {
		return fault.New(fault.CodeCertInvalid, what).
			Hint("see store.etcd.caFile, certFile and keyFile: PEM files, readable by this user")
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		text, err := private.ReadPublic(c.CAFile, limit.PrivateFile)
		if err != nil {
			return nil, bad("the CA of etcd cannot be read").Because(err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, bad("the CA of etcd cannot be read").Whyf("%s holds no certificate", c.CAFile)
		}
	}
	if c.CertFile == "" && c.KeyFile == "" {
		return out, nil
	}
	if c.CertFile == "" || c.KeyFile == "" {
		return nil, bad("the certificate for etcd is not whole").Whyf("certFile and keyFile belong together")
	}
	if _, err := private.Pair(c.CertFile, c.KeyFile); fault.Has(err, fault.CodeSecret) {
		return nil, err
	} else if err != nil {
		return nil, bad("the certificate for etcd cannot be used").Because(err)
	}
	// Read anew for each connection, so that a renewed certificate needs no restart.
	out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := private.Pair(c.CertFile, c.KeyFile)
		return &pair, err
	}
	return out, nil
}

func (c Config) password() (string, error) {
	if (c.Username == "") != (c.PasswordFile == "") {
		return "", invalid("the user of etcd is not whole").Hint("set both store.etcd.username and passwordFile, or neither")
	}
	if c.Username == "" {
		return "", nil
	}
	text, err := private.Read(c.PasswordFile, limit.KeyFile)
	if fault.Has(err, fault.CodeSecret) {
		return "", err
	}
	if err != nil {
		return "", invalid("the password for etcd cannot be read").Because(err).Hint("see store.etcd.passwordFile")
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) == 0 {
		return "", invalid("the password for etcd is empty").Whyf("nothing is in %s", c.PasswordFile).
			Hint("see store.etcd.passwordFile")
	}
	return string(text), nil
}

// unreachable is the fault of an etcd that does not do what it is asked.
func (c Config) unreachable(err error) *fault.Fault {
	var known *fault.Fault
	if errors.As(err, &known) {
		return known
	}
	f := fault.New(fault.CodeStoreAway, "etcd cannot be used").Because(err)
	switch {
	case refused(err):
		return f.Hint("see store.etcd.username and passwordFile; the user needs a role that reads and writes %s/",
			strings.TrimRight(c.Prefix, "/"))
	case errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded:
		f.Whyf("%s did not answer in time: %v", strings.Join(c.Endpoints, ", "), err)
	}
	return f.Hint("see that etcd runs at %s and has a leader, and that its certificates are right",
		strings.Join(c.Endpoints, ", ")).
		After(limit.DiscoveryStoreRetry)
}

// refused says whether etcd knows us not, or does not let us.
func refused(err error) bool {
	for _, e := range []error{rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrUserEmpty,
		rpctypes.ErrGRPCAuthFailed, rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCInvalidAuthToken,
		rpctypes.ErrGRPCUserEmpty} {
		if errors.Is(err, e) {
			return true
		}
	}
	return status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated
}
