// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// egressConfig is EgressSelectorConfiguration of apiserver.k8s.io/v1beta1, as
// far as it is needed.
type egressConfig struct {
	APIVersion       string            `yaml:"apiVersion"`
	Kind             string            `yaml:"kind"`
	EgressSelections []egressSelection `yaml:"egressSelections"`
}

type egressSelection struct {
	Name       string           `yaml:"name"`
	Connection egressConnection `yaml:"connection"`
}

type egressConnection struct {
	ProxyProtocol string          `yaml:"proxyProtocol"`
	Transport     egressTransport `yaml:"transport"`
}

type egressTransport struct {
	TCP *egressTCP `yaml:"tcp,omitempty"`
	UDS *egressUDS `yaml:"uds,omitempty"`
}

type egressUDS struct {
	UDSName string `yaml:"udsName"`
}

type egressTCP struct {
	URL       string    `yaml:"url"`
	TLSConfig egressTLS `yaml:"tlsConfig"`
}

type egressTLS struct {
	CABundle   string `yaml:"caBundle"`
	ClientKey  string `yaml:"clientKey"`
	ClientCert string `yaml:"clientCert"`
}

// egressRequest is what shall be configured; dir and address are of connect-tls.
type egressRequest struct{ cluster, dir, address, mode string }

func newEgressConfigCommand() *cobra.Command {
	var remote remoteFlags
	var mode, outDir, address string
	out := outFlag{mode: 0o644}
	cmd := &cobra.Command{
		Use:   "egress-config CLUSTER --mode grpc-uds|connect-uds|connect-tls",
		Short: "Print the EgressSelectorConfiguration with which kube-apiserver uses the hub",
		Long: `Print a ready EgressSelectorConfiguration for kube-apiserver's flag
--egress-selector-config-file, and create what it refers to: the cluster's unix
socket at the running hub (grpc-uds, connect-uds), or a client certificate, its
key and the CA in --out-dir (connect-tls). With --out it is written to a file, which
is replaced only by a complete one: 'egress-config … > FILE' would empty it even if
the command fails.

kube-apiserver reads the file and the certificate once, at its start. The
certificate lives a year; 'tombolo status' warns 30 days before its end.`,
		Example: `  tombolo egress-config c1 --mode grpc-uds --out egress.yaml
  tombolo egress-config c1 --mode connect-tls --out-dir /etc/kubernetes/tombolo --out egress.yaml`,
		Args: exactArgs("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return out.write(cmd, func(w io.Writer) error {
				return writeEgress(ctx, w, cmd.ErrOrStderr(), client, egressRequest{args[0], outDir, address, mode})
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&mode, "mode", "", "grpc-uds, connect-uds or connect-tls")
	fl.StringVar(&outDir, "out-dir", ".", "`DIR` for client.key, client.crt and ca.crt (connect-tls)")
	fl.StringVar(&address, "hub-address", "",
		"`HOST:PORT` by which kube-apiserver reaches the hub (connect-tls; default: the first that the hub advertises)")
	cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"grpc-uds", "connect-uds", "connect-tls"},
		cobra.ShellCompDirectiveNoFileComp))
	out.register(cmd, outReplaces)
	remote.register(cmd)
	return cmd
}

// writeEgress makes what the configuration refers to, and writes it.
func writeEgress(ctx context.Context, w, stderr io.Writer, client *admin.Client, q egressRequest) (err error) {
	var conn egressConnection
	files := &newFiles{}
	switch q.mode {
	case "grpc-uds":
		conn, err = egressSocket(ctx, client, q.cluster, hub.ProtocolKonnectivity, "GRPC")
	case "connect-uds":
		conn, err = egressSocket(ctx, client, q.cluster, hub.ProtocolConnect, "HTTPConnect")
	case "connect-tls":
		conn, files, err = egressCertificate(ctx, stderr, client, q)
	default:
		return usage(fmt.Sprintf("there is no mode %q", q.mode), "--mode grpc-uds, connect-uds or connect-tls")
	}
	if err != nil {
		return err
	}
	defer files.discard() // which nothing would refer to
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(egressConfig{
		APIVersion: "apiserver.k8s.io/v1beta1", Kind: "EgressSelectorConfiguration",
		EgressSelections: []egressSelection{{Name: "cluster", Connection: conn}},
	}); err != nil {
		return err
	}
	files.keep()
	return nil
}

func egressSocket(ctx context.Context, client *admin.Client, cluster, protocol,
	proxyProtocol string) (egressConnection, error) {
	var s admin.Socket
	err := client.Call(ctx, http.MethodPost, "/v1/clusters/"+url.PathEscape(cluster)+"/sockets",
		admin.SocketRequest{Protocol: protocol}, &s)
	return egressConnection{proxyProtocol, egressTransport{UDS: &egressUDS{s.Path}}}, err
}

// egressCertificate has a certificate issued for a key that never leaves this
// machine, and refuses to overwrite files. The files stay only if keep is called.
func egressCertificate(ctx context.Context, stderr io.Writer, client *admin.Client,
	q egressRequest) (conn egressConnection, files *newFiles, err error) {
	dir, err := filepath.Abs(q.dir)
	if err != nil {
		return conn, nil, fault.New(fault.CodeUsage, "--out-dir cannot be found").Because(err).Hint("give its full path")
	}
	if q.address != "" {
		if _, _, err := net.SplitHostPort(q.address); err != nil {
			return conn, nil, fault.New(fault.CodeUsage, "--hub-address cannot be read").Because(err).Hint("write HOST:PORT")
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return conn, nil, cannotWrite(dir, "--out-dir", err)
	}
	key, crt, ca := filepath.Join(dir, "client.key"), filepath.Join(dir, "client.crt"), filepath.Join(dir, "ca.crt")
	made, err := createFiles("--out-dir", newFile{key, 0o600}, newFile{crt, 0o644}, newFile{ca, 0o644})
	if err != nil {
		return conn, nil, err
	}
	defer func() {
		if err != nil {
			made.discard()
		}
	}()
	issued, keyPEM, err := issue(ctx, client, admin.CertificateRequest{Role: "client", Cluster: q.cluster,
		Name: "kube-apiserver"})
	if err != nil {
		return conn, nil, err
	}
	if q.address == "" {
		q.address = issued.Advertise[0]
	}
	if err := made.fill(keyPEM, []byte(issued.Certificate), []byte(issued.CA)); err != nil {
		return conn, nil, unused(err, issued)
	}
	fmt.Fprintf(stderr, "certificate %s for %s, until %s; files in %s\n", issued.Serial, issued.Identity,
		moment(issued.Expires), dir)
	return egressConnection{"HTTPConnect", egressTransport{TCP: &egressTCP{
		URL:       "https://" + q.address,
		TLSConfig: egressTLS{CABundle: ca, ClientKey: key, ClientCert: crt},
	}}}, made, nil
}

// issue makes a key, has the hub certify it, and gives both.
func issue(ctx context.Context, client *admin.Client,
	q admin.CertificateRequest) (issued admin.Certificate, keyPEM []byte, err error) {
	key, err := trust.NewKey()
	if err != nil {
		return issued, nil, err
	}
	csr, err := trust.NewCSR(key)
	if err != nil {
		return issued, nil, err
	}
	if keyPEM, err = trust.EncodeKey(key); err != nil {
		return issued, nil, err
	}
	q.CSR = string(csr)
	err = client.Call(ctx, http.MethodPost, "/v1/certificates", q, &issued)
	if err != nil && ctx.Err() != nil {
		err = fault.New(fault.CodeInterrupted, "no certificate was written").Because(ctx.Err()).
			Hint("'tombolo certificate list' shows whether one was issued already")
	}
	return issued, keyPEM, err
}

// unused says of a certificate that was issued for nothing how to be rid of it.
func unused(err error, c admin.Certificate) error {
	f := fault.From(err)
	return f.Hint("%s; 'tombolo revoke client %s' ends the certificate that was issued already", f.Next, c.Serial)
}
