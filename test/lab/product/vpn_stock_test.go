// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// stockCA makes certificates as Gardener does: by names, without URIs.
type stockCA struct {
	r    *vpnRig
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

func (r *vpnRig) newStockCA() *stockCA {
	r.t.Helper()
	c := &stockCA{r: r}
	c.cert, c.key = c.sign("ca-vpn", nil)
	return c
}

// sign makes the files NAME.crt and NAME.key. Without usages it makes the CA itself.
func (c *stockCA) sign(name string, usages []x509.ExtKeyUsage, hosts ...string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t := c.r.t
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.last++
	template := &x509.Certificate{SerialNumber: big.NewInt(c.last), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		IsCA: usages == nil, ExtKeyUsage: usages, DNSNames: hosts, KeyUsage: x509.KeyUsageDigitalSignature}
	parent, signer := c.cert, c.key
	if usages == nil {
		template.KeyUsage |= x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c.r.write(name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	c.r.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (r *vpnRig) stockIdentity(name string) string {
	return fmt.Sprintf("identity: {certificate: %s, key: %s, ca: %s}\n", r.path(name+".crt"), r.path(name+".key"), r.path("ca-vpn.crt"))
}

// openvpn starts the program itself, with a configuration of its own.
func (r *vpnRig) openvpn(h *lab.Host, name, config string) *role {
	r.t.Helper()
	x := &role{host: h, log: filepath.Join(r.dir, name+".log")}
	x.process = labtest.Start(r.t, h, x.log, nil, "openvpn", "--config", r.write(name+".conf", config))
	return x
}

// vpnShoot is the configuration of Gardener's vpn-shoot, and what its image sets beside it.
const vpnShoot = `client
dev tun0
proto tcp-client
remote vpn.c1.example.org 8132
http-proxy %[2]s 8132
http-proxy-option CUSTOM-HEADER Reversed-VPN %[3]s
ca %[1]s/ca-vpn.crt
cert %[1]s/%[4]s.crt
key %[1]s/%[4]s.key
tls-auth %[1]s/tls.key 1
remote-cert-tls server
data-ciphers AES-256-GCM
auth SHA256
auth-nocache
nobind
persist-key
persist-tun
tcp-nodelay
connect-retry 1 5
script-security 2
verb 3
`

// vpnSeedServer is the configuration of Gardener's vpn-seed-server, with an IPv4 transfer network too.
const vpnSeedServer = `mode server
tls-server
proto tcp6-server
port 1194
dev tun0
topology subnet
server 192.168.123.0 255.255.255.0
server-ipv6 fd8f:6d53:b97a:1::/96
client-config-dir %[1]s/ccd
route 10.42.0.0 255.255.255.0
ca %[1]s/ca-vpn.crt
cert %[1]s/vpn-seed-server.crt
key %[1]s/vpn-seed-server.key
tls-auth %[1]s/tls.key 0
dh none
data-ciphers AES-256-GCM
auth SHA256
keepalive 10 30
push "redirect-gateway def1"
push "route 198.51.100.0 255.255.255.0"
push "dhcp-option DNS 192.168.123.1"
tcp-nodelay
verb 3
`

// TestVPNWithStockOpenVPN: today's vpn-shoot dials our server through the edge, and our client a stock server.
func TestVPNWithStockOpenVPN(t *testing.T) {
	t.Parallel()
	r := newVPNRig(t, "stock", 1)
	ca, cluster := r.newStockCA(), r.world.Sites[0].Agents[0]
	ca.sign("vpn-seed-server", []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, seedAddr)
	ca.sign("vpn-shoot-client", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth})
	ca.sign("somebody-else", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth})
	reached := func() error {
		conn, _, err := r.dialFrom(r.seed, lab.BackendAddr+":7000")
		if err == nil {
			conn.Close()
		}
		return err
	}

	server := r.startEnd(r.seed, "server", "server", r.write("server.yaml", fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: VPNServerConfig
cluster: c1
runDir: %s/run-server
log: {level: debug}
tlsAuth: %s
clients: [vpn-shoot-client]
ranges: [{range: 10.42.0.0/24}]
%s`, r.vpnDir, r.path("tls.key"), r.stockIdentity("vpn-seed-server"))))
	nat := "table ip vpnshoot { chain post { type nat hook postrouting priority 100; oifname \"eth0\" masquerade; }; }"
	if _, err := labtest.Run(cluster, startWithin, nil, "nft", nat); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Sysctl("ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	other := r.openvpn(cluster, "somebody-else", fmt.Sprintf(vpnShoot, r.vpnDir, edgeAddr, vpnDestination, "somebody-else"))
	select {
	case <-other.process.Done():
	case <-time.After(reconnectWithin):
		t.Error("a client of another name has not been sent away")
	}
	if err := r.wrote(other.log, "AUTH_FAILED"); err != nil {
		t.Error(err)
	}
	stock := r.openvpn(cluster, "vpn-shoot", fmt.Sprintf(vpnShoot, r.vpnDir, edgeAddr, vpnDestination, "vpn-shoot-client"))
	r.ready(server, 8449)
	r.eventually("the backend is reached through a stock client", reconnectWithin, stock, reached)
	for _, x := range []*role{stock, server} {
		x.process.Signal(syscall.SIGTERM)
		<-x.process.Done()
	}
	if _, err := labtest.Run(cluster, startWithin, nil, "nft", "delete table ip vpnshoot"); err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(r.path("ccd"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write("ccd/vpn-shoot-client", "iroute 10.42.0.0 255.255.255.0\n")
	r.openvpn(r.seed, "vpn-seed-server", fmt.Sprintf(vpnSeedServer, r.vpnDir))
	before, err := labtest.Run(cluster, startWithin, nil, "ip", "route", "show", "default")
	if err != nil {
		t.Fatal(err)
	}
	start := func(key string) *role {
		return r.startEnd(cluster, "client", "client", r.write("client.yaml", fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: VPNClientConfig
cluster: c1
runDir: %s/run-client
log: {level: debug}
tlsAuth: %s
serverName: vpn-seed-server
ranges: [{range: 10.42.0.0/24}]
servers: %s
%s`, r.vpnDir, r.path(key), throughEdge, r.stockIdentity("vpn-shoot-client"))))
	}
	if _, err := labtest.Run(r.world.Control, startWithin, nil, r.program, "vpn", "key", "--out", r.path("dead.key")); err != nil {
		t.Fatal(err)
	}
	wrong := start("dead.key")
	r.eventually("a wrong key is named", reconnectWithin, wrong, func() error {
		out, err := labtest.Run(cluster, startWithin, nil, r.program, "vpn", "status", "--admin-socket",
			r.path("run-client")+"/vpn-client/vpn.sock")
		if err == nil && !strings.Contains(out, "compare tlsAuth or tlsCrypt of both ends") {
			err = errors.New(out)
		}
		return err
	})
	wrong.process.Signal(syscall.SIGTERM)
	<-wrong.process.Done()
	client := start("tls.key")
	r.ready(client, 8450)
	r.eventually("the backend is reached through a stock server", reconnectWithin, client, reached)
	routes, err := labtest.Run(cluster, startWithin, nil, "ip", "route", "show", "table", "all")
	if err != nil {
		t.Fatal(err)
	}
	after, err := labtest.Run(cluster, startWithin, nil, "ip", "route", "show", "default")
	if err != nil || after != before || strings.Contains(routes, "198.51.100.0/24") || strings.Contains(routes, "0.0.0.0/1") {
		t.Errorf("what the server pushed has changed routes (%v):\n%s", err, routes)
	}
}
