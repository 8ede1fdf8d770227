// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// kubectlArgs is the command line of kubectl against this cluster, inside the control plane's namespace.
func (c *Cluster) kubectlArgs(args []string) []string {
	return c.kubectlWith(c.kubeconfig("admin"), args)
}

func (c *Cluster) kubectlWith(kubeconfig string, args []string) []string {
	return append([]string{filepath.Join(c.rig.bin, "kubectl"), "--kubeconfig", kubeconfig,
		"--cache-dir", filepath.Join(c.dir, "kubectl-cache")}, args...)
}

// Kubectl runs kubectl and returns what it printed. Its error holds what kubectl wrote to stderr.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return output(ctx, c.cp, c.kubectlArgs(args)...)
}

// KubectlInput is Kubectl with something on its standard input.
func (c *Cluster) KubectlInput(ctx context.Context, in io.Reader, args ...string) (string, error) {
	return outputOf(ctx, c.cp, in, c.kubectlArgs(args)...)
}

// Apply creates or changes the objects of a manifest.
func (c *Cluster) Apply(ctx context.Context, manifest io.Reader) error {
	_, err := c.KubectlInput(ctx, manifest, "apply", "-f", "-")
	return err
}

// StartKubectl starts a kubectl that goes on until it is stopped or ctx ends, such as `logs -f` or
// `port-forward`. out gets what it prints, errors too; in may be nil.
func (c *Cluster) StartKubectl(ctx context.Context, in io.Reader, out io.Writer, args ...string) (*lab.Process, error) {
	line := c.kubectlArgs(args)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	cmd.WaitDelay = 5 * time.Second
	return c.cp.Start(cmd)
}

// Dial connects to a literal address from the control plane's namespace.
func (c *Cluster) Dial(ctx context.Context, address string) (net.Conn, error) {
	return c.cp.DialContext(ctx, "tcp", address)
}

// Expose makes kube-apiserver reachable on the host's loopback until ctx ends, and returns the path of a
// kubeconfig that works there with the host's own kubectl.
func (c *Cluster) Expose(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed with ctx
			}
			go c.carry(ctx, conn)
		}
	}()
	path := filepath.Join(c.dir, "host.kubeconfig")
	return path, c.pki.kubeconfig(path, "https://"+listener.Addr().String(), "admin")
}

// carry joins a connection of the host with one to kube-apiserver.
func (c *Cluster) carry(ctx context.Context, host net.Conn) {
	defer host.Close()
	server, err := c.cp.DialContext(ctx, "tcp", c.control+":6443")
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-apiserver is not reachable:", err)
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { host.Close(); server.Close() })
	defer stop()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{server, host}, {host, server}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // both ends see their own errors
			done <- struct{}{}
		}()
	}
	<-done // kube-apiserver's TLS ends both directions at once
}

// Kubectl is the path of the kubectl that belongs to the rig's Kubernetes version.
func (r *Rig) Kubectl() string { return filepath.Join(r.bin, "kubectl") }
