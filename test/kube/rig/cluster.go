// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// Mode is how kube-apiserver reaches the cluster.
type Mode string

// The modes of `tombolo egress-config`, and Direct: no egress selector, kube-apiserver dials itself.
const (
	Direct     Mode = "direct"
	GRPCUDS    Mode = "grpc-uds"
	ConnectUDS Mode = "connect-uds"
	ConnectTLS Mode = "connect-tls"
)

// Cluster is one Kubernetes cluster with a node, "node1", and a second one where AddNode is called.
type Cluster struct {
	Name string

	rig     *Rig
	dir     string
	cp      *lab.Host
	nat     *lab.Host
	control string // address of the control plane on the wan
	router  string // address of the NAT router on the wan
	join    string // join line of the agents
	pki     *pki
	client  *http.Client // speaks to kube-apiserver as admin

	apiserver *Process
	others    []*Process // etcd, controller manager, scheduler
	node      *node
	second    *node // nil: there is one only
}

// StartCluster brings a cluster up: partitioned, with its node Ready, registered at the hub when there is
// one, without an agent. kube-apiserver begins with the given mode.
func (r *Rig) StartCluster(ctx context.Context, name string, mode Mode) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	c, err := r.layCluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if r.hub != nil {
		if c.join, err = r.hub.join(ctx, name, 20); err != nil {
			return nil, err
		}
	}
	// The node's runtime needs no control plane: both come up at once.
	runtime := make(chan error, 1)
	go func() { runtime <- c.node.startRuntime(ctx) }()
	err = c.startControlPlane(ctx, mode)
	if err = errors.Join(err, <-runtime); err != nil {
		return nil, fmt.Errorf("bring up %s: %w", name, err)
	}
	if err := c.node.startKubelet(ctx); err != nil {
		return nil, fmt.Errorf("bring up the node of %s: %w", name, err)
	}
	return c, nil
}

// StartControlPlane brings up what a cluster has without a node: objects can be kept, nothing runs.
func (r *Rig) StartControlPlane(ctx context.Context, name string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := r.layCluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := c.startControlPlane(ctx, Direct); err != nil {
		return nil, fmt.Errorf("bring up %s: %w", name, err)
	}
	return c, nil
}

// layCluster makes a cluster's networks and certificates.
func (r *Rig) layCluster(ctx context.Context, name string) (*Cluster, error) {
	c, err := r.addCluster(name)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := c.lay(ctx); err != nil {
		return nil, fmt.Errorf("lay the network of %s: %w", name, err)
	}
	if err := c.issueAll(); err != nil {
		return nil, fmt.Errorf("make the certificates of %s: %w", name, err)
	}
	r.step(name+": namespaces, NAT router, firewall and certificates", begin)
	return c, nil
}

// addCluster enters a cluster into the rig's list, from which Close takes it down however far it came.
func (r *Rig) addCluster(name string) (*Cluster, error) {
	if !regexp.MustCompile(`^[a-z][a-z0-9]{0,7}$`).MatchString(name) {
		return nil, fmt.Errorf("cluster name %q: want one to eight letters and digits (interfaces carry it)", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.New("the rig is closed")
	}
	n := len(r.clusters)
	c := &Cluster{Name: name, rig: r, dir: filepath.Join(r.Dir, name),
		control: controlAddress(n), router: routerAddress(n)}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of cluster %s: %w", name, err)
	}
	r.clusters = append(r.clusters, c)
	return c, nil
}

// stop ends all processes of the cluster. What it made is test data: nothing is asked to finish its work.
func (c *Cluster) stop() {
	c.second.stop()
	c.node.stop()
	c.apiserver.stop()
	for _, p := range c.others {
		p.stop()
	}
}

// Server is the URL of kube-apiserver, reachable from the public network's namespaces only.
func (c *Cluster) Server() string { return "https://" + c.control + ":6443" }

// Log is the end of what one of the cluster's processes wrote: "kube-apiserver", "kubelet", "containerd",
// "kube-proxy", "etcd", "controllers" or "scheduler".
func (c *Cluster) Log(process string) string { return tail(filepath.Join(c.dir, process+".log")) }
