// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/admin"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/hub"
	"github.com/tombolo-io/tombolo/internal/trust"
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

func newEgressConfigCommand() *cobra.Command {
	var remote remoteFlags
	var mode, outDir, address string
	cmd := &cobra.Command{
		Use:   "egress-config CLUSTER --mode grpc-uds|connect-uds|connect-tls",
		Short: "Print the EgressSelectorConfiguration with which kube-apiserver uses the hub",
		Long: `Print a ready EgressSelectorConfiguration for kube-apiserver's flag
--egress-selector-config-file, and make what it refers to: the cluster's unix
socket at the running hub (grpc-uds, connect-uds), or a client certificate, its
key and the CA in --out-dir (connect-tls).

kube-apiserver reads the file and the certificate once, at its start. The
certificate lives a year; 'tombolo status' warns 30 days before its end.`,
		Example: `  tombolo egress-config c1 --mode grpc-uds > egress.yaml
  tombolo egress-config c1 --mode connect-tls --out-dir /etc/kubernetes/tombolo > egress.yaml`,
		Args: exactArgs("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := remote.client()
			if err != nil {
				return err
			}
			var conn egressConnection
			switch mode {
			case "grpc-uds":
				conn, err = egressSocket(cmd.Context(), client, args[0], hub.ProtocolKonnectivity, "GRPC")
			case "connect-uds":
				conn, err = egressSocket(cmd.Context(), client, args[0], hub.ProtocolConnect, "HTTPConnect")
			case "connect-tls":
				conn, err = egressCertificate(cmd, client, args[0], outDir, address)
			default:
				return usage(fmt.Sprintf("there is no mode %q", mode), "--mode grpc-uds, connect-uds or connect-tls")
			}
			if err != nil {
				return err
			}
			enc := yaml.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent(2)
			return enc.Encode(egressConfig{
				APIVersion: "apiserver.k8s.io/v1beta1", Kind: "EgressSelectorConfiguration",
				EgressSelections: []egressSelection{{Name: "cluster", Connection: conn}},
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&mode, "mode", "", "grpc-uds, connect-uds or connect-tls")
	fl.StringVar(&outDir, "out-dir", ".", "`DIR` for client.key, client.crt and ca.crt (connect-tls)")
	fl.StringVar(&address, "hub-address", "", "`HOST:PORT` by which kube-apiserver reaches the hub (connect-tls; default: the first that the hub advertises)")
	cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"grpc-uds", "connect-uds", "connect-tls"}, cobra.ShellCompDirectiveNoFileComp))
	remote.register(cmd)
	return cmd
}

func egressSocket(ctx context.Context, client *admin.Client, cluster, protocol, proxyProtocol string) (egressConnection, error) {
	var s admin.Socket
	err := client.Call(ctx, http.MethodPost, "/v1/clusters/"+url.PathEscape(cluster)+"/sockets", admin.SocketRequest{Protocol: protocol}, &s)
	return egressConnection{proxyProtocol, egressTransport{UDS: &egressUDS{s.Path}}}, err
}

// egressCertificate has a certificate issued for a key that never leaves this
// machine, and refuses to overwrite files.
func egressCertificate(cmd *cobra.Command, client *admin.Client, cluster, dir, address string) (egressConnection, error) {
	var none egressConnection
	dir, err := filepath.Abs(dir)
	if err != nil {
		return none, err
	}
	if address != "" {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return none, fault.New(fault.CodeUsage, "--hub-address cannot be read").Because(err).Hint("write HOST:PORT")
		}
	}
	paths := map[string]string{}
	for _, name := range []string{"client.key", "client.crt", "ca.crt"} {
		paths[name] = filepath.Join(dir, name)
		if _, err := os.Lstat(paths[name]); err == nil {
			return none, fault.Newf(fault.CodeUsage, "%s exists already", paths[name]).Hint("move it away, or choose another --out-dir")
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return none, fault.New(fault.CodeUsage, "--out-dir cannot be made").Because(err).Hint("choose another --out-dir")
	}
	issued, key, err := issue(cmd.Context(), client, admin.CertificateRequest{Role: "client", Cluster: cluster, Name: "kube-apiserver"})
	if err != nil {
		return none, err
	}
	if address == "" {
		address = issued.Advertise[0]
	}
	for name, data := range map[string][]byte{"client.key": key, "client.crt": []byte(issued.Certificate), "ca.crt": []byte(issued.CA)} {
		mode := os.FileMode(0o644)
		if name == "client.key" {
			mode = 0o600
		}
		if err := createFile(paths[name], data, mode); err != nil {
			return none, err
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "certificate %s for %s, until %s; files in %s\n", issued.Serial, issued.Identity, issued.Expires.Local().Format(time.DateTime), dir)
	return egressConnection{"HTTPConnect", egressTransport{TCP: &egressTCP{
		URL:       "https://" + address,
		TLSConfig: egressTLS{CABundle: paths["ca.crt"], ClientKey: paths["client.key"], ClientCert: paths["client.crt"]},
	}}}, nil
}

// issue makes a key, has the hub certify it, and gives both.
func issue(ctx context.Context, client *admin.Client, q admin.CertificateRequest) (issued admin.Certificate, keyPEM []byte, err error) {
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
	return issued, keyPEM, client.Call(ctx, http.MethodPost, "/v1/certificates", q, &issued)
}

func createFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err == nil {
		_, err = f.Write(data)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return fault.New(fault.CodeUsage, path+" cannot be written").Because(err).Hint("choose a path that does not exist, in a folder that does")
	}
	return nil
}
