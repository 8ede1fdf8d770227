// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// issueAll makes the cluster's CA, certificates and client configurations.
func (c *Cluster) issueAll() error {
	var err error
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki")); err != nil {
		return err
	}
	for file, s := range map[string]subject{
		"apiserver": {name: "kube-apiserver", hosts: []string{c.control, "127.0.0.1", serviceAddress, "localhost",
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", c.EdgeName()}},
		"apiserver-kubelet": {name: "kube-apiserver-kubelet-client", group: "system:masters"},
		"front-proxy":       {name: "front-proxy-client"},
		"admin":             {name: "admin", group: "system:masters"},
		"controllers":       {name: "system:kube-controller-manager"},
		"scheduler":         {name: "system:kube-scheduler"},
		"proxy":             {name: "system:kube-proxy"},
		// Served by the test pod behind the service "backend".
		"backend": {name: "backend.default.svc", hosts: []string{"backend.default.svc"}},
	} {
		if err := c.pki.issue(file, s); err != nil {
			return err
		}
	}
	for _, user := range []string{"admin", "controllers", "scheduler", "proxy"} {
		if err := c.pki.kubeconfig(c.kubeconfig(user), c.Server(), user); err != nil {
			return err
		}
	}
	return c.makeClient()
}

func (c *Cluster) kubeconfig(user string) string { return filepath.Join(c.dir, user+".kubeconfig") }

// AdminKubeconfig is the file of an administrator, for beside the control plane.
func (c *Cluster) AdminKubeconfig() string { return c.kubeconfig("admin") }

// NodeKubeconfig issues the certificate of a node's kubelet, and gives the path of a kubeconfig with it.
func (c *Cluster) NodeKubeconfig(node string) (string, error) {
	file := "node-" + node
	if err := c.pki.issue(file, subject{name: "system:node:" + node, group: "system:nodes"}); err != nil {
		return "", err
	}
	path := c.kubeconfig(file)
	return path, c.pki.kubeconfig(path, c.Server(), file)
}

// TokenKubeconfig gives the path of a kubeconfig with a service account's token, in a file of its own.
func (c *Cluster) TokenKubeconfig(name, token string) (string, error) {
	file := filepath.Join(c.dir, name+".token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return "", err
	}
	path := c.kubeconfig(name)
	return path, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: rig, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: user, user: {tokenFile: %q}}]
contexts: [{name: rig, context: {cluster: rig, user: user}}]
current-context: rig
`, c.Server(), c.pki.crt("ca"), file), 0o600)
}

func (c *Cluster) makeClient() error {
	pair, err := tls.LoadX509KeyPair(c.pki.crt("admin"), c.pki.pem("admin"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.pki.cert)
	c.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		DisableKeepAlives: true, // kube-apiserver is restarted between requests
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.cp.DialContext(ctx, network, address)
		},
	}}
	return nil
}

// startControlPlane starts etcd, kube-apiserver, and when that is ready the controllers and the scheduler.
func (c *Cluster) startControlPlane(ctx context.Context, mode Mode) error {
	begin := time.Now()
	if err := c.startOther("etcd", "etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--name", "rig", "--log-level", "warn",
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
		"--initial-cluster", "rig=http://127.0.0.1:2380",
		"--unsafe-no-fsync"); err != nil { // the data does not outlive the process
		return err
	}
	if err := c.UseEgress(ctx, mode); err != nil {
		return err
	}
	if err := c.startOther("controllers", "kube-controller-manager", "--kubeconfig", c.kubeconfig("controllers"),
		"--bind-address", "127.0.0.1", "--cluster-cidr", PodRange, "--allocate-node-cidrs=true", "--leader-elect=false",
		"--root-ca-file", c.pki.crt("ca"), "--service-account-private-key-file", c.pki.pem("sa"),
		"--use-service-account-credentials",
		"--node-monitor-grace-period", "10m"); err != nil { // of a kube-apiserver that tests stop and start
		return err
	}
	if err := c.startOther("scheduler", "kube-scheduler", "--kubeconfig", c.kubeconfig("scheduler"),
		"--bind-address", "127.0.0.1", "--leader-elect=false"); err != nil {
		return err
	}
	c.rig.step(c.Name+": etcd, kube-apiserver, kube-controller-manager and kube-scheduler", begin)
	return nil
}

func (c *Cluster) startOther(name, program string, args ...string) error {
	p, err := c.rig.start(c.dir, launch{name: name, host: c.cp, args: append([]string{filepath.Join(c.rig.bin, program)}, args...)})
	if err != nil {
		return err
	}
	c.others = append(c.others, p)
	return nil
}

// UseEgress restarts kube-apiserver alone, with the egress selector of a mode. etcd, the node and its pods
// stay as they are. It returns when kube-apiserver is ready.
func (c *Cluster) UseEgress(ctx context.Context, mode Mode) error {
	args, err := c.egressArgs(ctx, mode)
	if err != nil {
		return err
	}
	// At once: etcd keeps what was written, and the longer kube-apiserver is away, the longer its clients wait
	// before they ask again (up to 30 s).
	c.apiserver.stop()
	c.apiserver, err = c.rig.start(c.dir, launch{name: "kube-apiserver", host: c.cp, args: append(c.apiserverArgs(), args...)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return await(ctx, "wait for kube-apiserver", c.apiserver, func(ctx context.Context) error {
		_, err := c.Get(ctx, "/readyz")
		return err
	})
}

// egressArgs asks the hub for the egress selector's configuration, or writes that of konnectivity.
func (c *Cluster) egressArgs(ctx context.Context, mode Mode) ([]string, error) {
	if mode == Direct {
		return nil, nil
	}
	if mode == KonnectivityGRPC || mode == KonnectivityConnect {
		file := filepath.Join(c.dir, string(mode)+".yaml")
		return []string{"--egress-selector-config-file", file}, os.WriteFile(file, []byte(c.konnectivityEgress(mode)), 0o600)
	}
	if c.rig.hub == nil {
		return nil, errors.New("egress mode " + string(mode) + " needs the hub: call StartHub first")
	}
	dir := filepath.Join(c.dir, "egress-"+string(mode))
	file := filepath.Join(dir, "egress.yaml")
	args := []string{"--egress-selector-config-file", file}
	if _, err := os.Stat(file); err == nil {
		return args, nil // the mode was used before: its certificate is still good
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	text, err := c.rig.hub.Tombolo(ctx, "egress-config", c.Name, "--mode", string(mode), "--out-dir", dir,
		"--hub-address", HubAddress+":"+HubPort)
	if err != nil {
		return nil, err
	}
	return args, os.WriteFile(file, []byte(text), 0o600)
}

func (c *Cluster) apiserverArgs() []string {
	p := c.pki
	return []string{filepath.Join(c.rig.bin, "kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=6443", "--advertise-address=" + c.control,
		"--cert-dir=" + p.dir, "--tls-cert-file=" + p.crt("apiserver"), "--tls-private-key-file=" + p.pem("apiserver"),
		"--client-ca-file=" + p.crt("ca"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority=" + p.crt("ca"),
		"--kubelet-client-certificate=" + p.crt("apiserver-kubelet"), "--kubelet-client-key=" + p.pem("apiserver-kubelet"),
		"--service-cluster-ip-range=" + ServiceRange,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + filepath.Join(p.dir, "sa.pub"), "--service-account-signing-key-file=" + p.pem("sa"),
		"--requestheader-client-ca-file=" + p.crt("ca"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--allow-privileged=true", // as kubeadm has it
		"--proxy-client-cert-file=" + p.crt("front-proxy"), "--proxy-client-key-file=" + p.pem("front-proxy"),
	}
}

// Get asks kube-apiserver for a path as admin.
func (c *Cluster) Get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server()+path, nil)
	if err != nil {
		return "", err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return string(text), fmt.Errorf("GET %s: %s: %.300s", path, response.Status, text)
	}
	return string(text), nil
}
