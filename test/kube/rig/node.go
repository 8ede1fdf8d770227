// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// NodeName is the name of the first node of a cluster, SecondNode that of the second.
const (
	NodeName   = "node1"
	SecondNode = "node2"
)

// node is a machine of a cluster: a network, a mount and a PID namespace. Its first process reaps; when it
// dies the kernel kills everything in the PID namespace and drops every mount.
type node struct {
	c       *Cluster
	name    string
	address string
	pods    string // range of its pods
	host    *lab.Host

	dir    string
	cgroup string // name below each cgroup hierarchy
	init   *Process
	procs  []*Process
}

func (n *node) stop() {
	if n == nil {
		return
	}
	n.init.stop() // returns when the namespace is empty
	for _, p := range n.procs {
		p.stop()
	}
}

// initScript makes the machine's own view of the file system: what containerd, CNI plugins and kubelet keep
// in fixed places lands in the rig's directory, and the kernel settings that kubelet insists on writing are
// files of ours, so that the host's stay as they are.
const initScript = `set -e
mount --make-rprivate /
mount -t proc proc /proc
for s in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p "$1/sysctl/$(dirname $s)"
	cat "/proc/sys/$s" > "$1/sysctl/$s"
	mount --bind "$1/sysctl/$s" "/proc/sys/$s"
done
for d in run var/lib var/log; do
	mkdir -p "$1/$d"
	mount --bind "$1/$d" "/$d"
done
mkdir -p /run/lock
: > "$1/ready"
exec "$2" pause
`

// startRuntime makes the machine, starts containerd in it and imports the test images.
func (n *node) startRuntime(ctx context.Context) error {
	begin := time.Now()
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return err
	}
	if err := makeCgroup(n.cgroup); err != nil {
		return err
	}
	if err := n.writeFiles(); err != nil {
		return err
	}
	c := n.c
	var err error
	n.init, err = c.rig.start(n.logs(), launch{name: "node-init", host: n.host,
		args: []string{"/bin/sh", "-c", initScript, "node-init", n.dir, c.rig.workload},
		attr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}})
	if err != nil {
		return err
	}
	if err := await(ctx, "wait for the node's file systems", n.init, func(context.Context) error {
		_, err := os.Stat(filepath.Join(n.dir, "ready"))
		return err
	}); err != nil {
		return err
	}
	runtime, err := n.start("containerd", "containerd", "--config", filepath.Join(n.dir, "containerd.toml"))
	if err != nil {
		return err
	}
	if err := await(ctx, "wait for containerd", runtime, func(ctx context.Context) error {
		_, err := n.run(ctx, "ctr", "-a", n.socket(), "version")
		return err
	}); err != nil {
		return err
	}
	if err := n.load(ctx, c.rig.images); err != nil {
		return err
	}
	c.rig.step(c.Name+": "+n.name+" with containerd and the test images", begin)
	return nil
}

// startKubelet joins the node to the control plane and waits until it is Ready.
func (n *node) startKubelet(ctx context.Context) error {
	begin, c := time.Now(), n.c
	kubeconfig, err := c.NodeKubeconfig(n.name)
	if err != nil {
		return err
	}
	server := subject{name: n.name, hosts: []string{n.name, n.address}}
	if err := c.pki.issue("kubelet-server-"+n.name, server); err != nil {
		return err
	}
	kubelet, err := n.start("kubelet", filepath.Join(c.rig.bin, "kubelet"),
		"--config", filepath.Join(n.dir, "kubelet.yaml"), "--kubeconfig", kubeconfig,
		"--hostname-override", n.name, "--node-ip", n.address, "--root-dir", filepath.Join(n.dir, "kubelet"))
	if err != nil {
		return err
	}
	if _, err := n.start("kube-proxy", filepath.Join(c.rig.bin, "kube-proxy"), "--kubeconfig", c.kubeconfig("proxy"),
		"--proxy-mode=nftables", "--cluster-cidr="+PodRange, "--hostname-override="+n.name,
		// 0 leaves the kernel's settings alone.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s"); err != nil {
		return err
	}
	if err := await(ctx, "wait for the node to be Ready", kubelet, func(ctx context.Context) error {
		text, err := c.Kubectl(ctx, "get", "node", n.name, "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints[*].key}`)
		if err == nil && text != "True" {
			err = fmt.Errorf("node condition and taints: %q", text)
		}
		return err
	}); err != nil {
		return err
	}
	c.rig.step(c.Name+": kubelet and kube-proxy, "+n.name+" is Ready", begin)
	return nil
}

func (n *node) socket() string { return filepath.Join(n.dir, "containerd.sock") }

// inside is the command line that runs args on the machine.
func (n *node) inside(args []string) []string {
	return append([]string{"nsenter", "-t", strconv.Itoa(n.init.Pid()), "-m", "-p", "-n", "--"}, args...)
}

// logs is where the logs of what runs on the machine are. The first node has them where those of the cluster are.
func (n *node) logs() string {
	if n.name == NodeName {
		return n.c.dir
	}
	return n.dir
}

func (n *node) start(name string, args ...string) (*Process, error) {
	p, err := n.c.rig.start(n.logs(), launch{name: name, host: n.c.rig.lab.Here(), args: n.inside(args)})
	if err == nil {
		n.procs = append(n.procs, p)
	}
	return p, err
}

func (n *node) run(ctx context.Context, args ...string) (string, error) {
	return output(ctx, n.c.rig.lab.Here(), n.inside(args)...)
}

func (n *node) load(ctx context.Context, archive string) error {
	_, err := n.run(ctx, "ctr", "-a", n.socket(), "-n", "k8s.io", "images", "import", "--snapshotter", "native", archive)
	return err
}

// OnNode runs a command on the first node of the cluster and returns what it printed.
func (c *Cluster) OnNode(ctx context.Context, args ...string) (string, error) {
	return c.node.run(ctx, args...)
}

// ImportImages loads an archive of images, docker's or OCI's, into the containerd of the first node.
func (c *Cluster) ImportImages(ctx context.Context, archive string) error {
	return c.node.load(ctx, archive)
}

// AddNode brings up a second node beside the first, behind the same router, which has the product's image, and waits
// until it is Ready.
func (c *Cluster) AddNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	n, err := c.layNode(ctx, SecondNode, secondAddress, secondPods)
	if err != nil {
		return err
	}
	c.second = n
	if err := n.startRuntime(ctx); err != nil {
		return err
	}
	if err := n.load(ctx, filepath.Join(c.rig.repo, "bin/tombolo-image.tar")); err != nil {
		return err
	}
	return n.startKubelet(ctx)
}

// KillNode ends the second node at once, with all that runs on it, as a loss of power does.
func (c *Cluster) KillNode() { c.second.stop() }

func (n *node) writeFiles() error {
	if err := os.MkdirAll(filepath.Join(n.dir, "cni"), 0o755); err != nil {
		return err
	}
	fill := strings.NewReplacer("DIR", n.dir, "PKI", n.c.pki.dir, "PAUSE", pauseImage, "CGROUP", n.cgroup,
		"SUBNET", n.pods, "NAME", n.name)
	for name, text := range map[string]string{
		"containerd.toml":     containerdConfig,
		"kubelet.yaml":        kubeletConfig,
		"cni/10-rig.conflist": cniConfig,
		"resolv.conf":         "nameserver 127.0.0.1\n", // pods resolve nothing: there is no cluster DNS
	} {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(fill.Replace(text)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const containerdConfig = `version = 2
root = "DIR/containerd"
state = "DIR/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
	"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
address = "DIR/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "DIR/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "PAUSE"
restrict_oom_score_adj = true # works also without CAP_SYS_RESOURCE
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "DIR/cni"
`

const cniConfig = `{"cniVersion": "0.4.0", "name": "rig", "plugins": [{
	"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
	"ipam": {"type": "host-local", "ranges": [[{"subnet": "SUBNET"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://DIR/containerd.sock
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /CGROUP
enforceNodeAllocatable: []
failSwapOn: false
evictionHard: {}
imageGCHighThresholdPercent: 100
imageMinimumGCAge: 24h
containerLogMaxSize: 1Gi
makeIPTablesUtilChains: false
resolvConf: DIR/resolv.conf
tlsCertFile: PKI/kubelet-server-NAME.crt
tlsPrivateKeyFile: PKI/kubelet-server-NAME.key
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: PKI/ca.crt}
authorization: {mode: Webhook}
`
