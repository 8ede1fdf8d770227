// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
)

// VPN is the mode in which kube-apiserver asks 'tombolo vpn server' by CONNECT: see StartVPN.
const VPN Mode = "vpn"

// vpnLink is the server's link, by which the control plane's firewall lets packets to the node.
const vpnLink = "tombolo-vpn"

// StartVPN runs both ends of a reversed VPN, beside kube-apiserver and on the node, and makes the egress selector of the
// mode VPN.
func (c *Cluster) StartVPN(ctx context.Context) error {
	begin := time.Now()
	if c.rig.hub == nil {
		return errors.New("a VPN needs the hub, whose CA makes the certificates: call StartHub first")
	}
	dir := filepath.Join(c.dir, "egress-"+string(VPN))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, args := range map[string][]string{
		"server.pem":    {"--role", "vpn-server", "--name", "server", "--host", c.control},
		"client.pem":    {"--role", "vpn-client", "--name", "client"},
		"apiserver.pem": {"--role", "client", "--name", "apiserver-vpn"},
	} {
		args = append([]string{"certificate", "issue", "--cluster", c.Name, "--out", path(name)}, args...)
		if _, err := c.rig.hub.Tombolo(ctx, args...); err != nil {
			return err
		}
	}
	if _, err := c.rig.hub.Tombolo(ctx, "vpn", "key", "--out", path("tls.key")); err != nil {
		return err
	}
	if err := c.writeVPN(dir); err != nil {
		return err
	}
	// Only what goes by the tunnel may leave for the node.
	if err := nft(ctx, c.cp, `insert rule ip rig out oifname "`+vpnLink+`" accept`+"\n"); err != nil {
		return err
	}
	for _, end := range []struct {
		name string
		l    launch
		port string
	}{
		{"server", launch{name: "vpn-server", host: c.cp}, "8449"},
		{"client", launch{name: "vpn-client", host: c.node.host}, "8450"},
	} {
		end.l.args = []string{c.rig.tombolo, "vpn", end.name, "--config", path(end.name + ".yaml")}
		p, err := c.rig.start(c.dir, end.l)
		if err != nil {
			return err
		}
		c.others = append(c.others, p)
		defer func() {
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, p.Tail())
			}
		}()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := await(ctx, "wait for packets to pass", nil, func(ctx context.Context) error {
		_, err := output(ctx, c.cp, "curl", "-sSf", "--max-time", "2", "http://127.0.0.1:8449/readyz")
		return err
	}); err != nil {
		return err
	}
	c.rig.step(c.Name+": a VPN leads to the node", begin)
	return nil
}

// writeVPN writes the configurations of both ends, and of the egress selector.
func (c *Cluster) writeVPN(dir string) error {
	path := func(name string) string { return filepath.Join(dir, name) }
	ranges := fmt.Sprintf("ranges: [{range: %s}, {range: %s}, {range: %s}]\n", NodeRange, PodRange, ServiceRange)
	head := func(kind, name string) string {
		return fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: %s\ncluster: %s\nidentity: {bundle: %s}\ntlsCrypt: %s\nrunDir: %s\n",
			kind, c.Name, path(name+".pem"), path("tls.key"), path(name[:1])) + ranges // short: sockets are below it
	}
	cert, ca, err := trust.ReadBundle("client", path("apiserver.pem"))
	if err != nil {
		return err
	}
	key, err := trust.EncodeKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(path("server.yaml"), []byte(head("VPNServerConfig", "server")+"connect: {}\n"), 0o600),
		os.WriteFile(path("client.yaml"), []byte(head("VPNClientConfig", "client")+"servers: [{address: '"+c.control+":1194'}]\n"), 0o600),
		os.WriteFile(path("ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), 0o600),
		os.WriteFile(path("client.crt"), trust.EncodeCertificate(cert.Certificate[0]), 0o600),
		os.WriteFile(path("client.key"), key, 0o600),
		os.WriteFile(path("egress.yaml"), []byte(strings.ReplaceAll(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: https://`+c.control+`:9443
        tlsConfig: {caBundle: DIR/ca.crt, clientCert: DIR/client.crt, clientKey: DIR/client.key}
`, "DIR", dir)), 0o600))
}
