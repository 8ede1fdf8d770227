// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// What the static key of a VPN does to handshakes.
const (
	HandshakeAuth  = "auth"
	HandshakeCrypt = "crypt"
	HandshakeNone  = "none" // there is no key
)

// VPNOptions are those of both ends of a reversed VPN.
type VPNOptions struct {
	Common
	Cluster   string
	Pods      int      // 1 or 2: servers, or clients
	Secret    string   // name of a Secret that is there; empty: one is printed
	Bundles   []string // texts of bundles, for the Secret that is printed
	StaticKey string   // text of the key, for the same
	Handshake string
	ForeignCA bool // the Secret has tls.crt, tls.key and ca.crt in place of bundles
	Protocol  string
	Ranges    []string // CIDR
	Maps      []string // CIDR=CIDR
	Transfer  []string // of each server: CIDR[,CIDR]; none: the defaults, of the families that the ranges have
	MTU       int      // 0: the default of the program

	// Check reads a configuration as the program does.
	Check func(file string, config []byte) error
}

// VPNServerOptions configure the end beside a control plane.
type VPNServerOptions struct {
	VPNOptions
	Exposed
	Clients []string // common names that may dial in
	Locals  []string // CIDR
	Connect bool     // serve kube-apiserver
}

// VPNClientOptions configure the end in a cluster.
type VPNClientOptions struct {
	VPNOptions
	Servers      []string // host:port
	Proxy        string   // host:port
	Header       string
	Destinations []string // of each server
	ServerName   string
}

// VPNServerDefaults returns the default options.
func VPNServerDefaults() VPNServerOptions {
	out := VPNServerOptions{VPNOptions: vpnDefaults(), Exposed: Exposed{ServiceType: "ClusterIP"}, Connect: true}
	out.Name, out.Namespace = vpnServerBox, "" // the control plane's: nobody but its owner knows
	return out
}

// VPNClientDefaults returns the default options.
func VPNClientDefaults() VPNClientOptions {
	out := VPNClientOptions{VPNOptions: vpnDefaults()}
	out.Name, out.Namespace, out.PriorityClass = vpnClientBox, "kube-system", "system-cluster-critical"
	return out
}

// vpnDefaults have no limit on memory: whoever is killed for it cuts every connection.
func vpnDefaults() VPNOptions {
	out := VPNOptions{Common: commonDefaults(), Pods: 1, Handshake: HandshakeAuth, Protocol: "tcp"}
	out.MemoryLimit = ""
	return out
}

const (
	vpnServerBox    = "vpn-server"
	vpnClientBox    = "vpn-client"
	vpnPort         = 1194
	vpnConnectPort  = 9443
	vpnServerHealth = 8449
	vpnClientHealth = 8450
	vpnIdentityDir  = "/etc/tombolo/identity"
	vpnStaticKey    = "static.key"
	vpnConnectCA    = "connect-ca.crt"
	podNameKey      = "POD_NAME"
	podNameLabel    = "statefulset.kubernetes.io/pod-name"
	tmpDir          = "/tmp"
)

// vpnTransfer are the networks of servers if nothing else is said, the first those of the program.
func vpnTransfer(server int, f families) []string {
	return f.of(fmt.Sprintf("192.168.%d.0/24", 123+server), fmt.Sprintf("fd8f:6d53:b97a:%d::/96", 1+server))
}

// VPNServer renders the end of a reversed VPN that is beside a control plane.
func VPNServer(o VPNServerOptions) ([]byte, error) {
	const command = "vpn manifest server"
	var p problems
	selector, tolerations := p.common(o.Common)
	f := p.vpn(o.VPNOptions, "servers", o.Pods, 1)
	annotations := p.vpnServer(o)
	if err := p.fault(command); err != nil {
		return nil, err
	}
	var configs []any
	for i := range o.Pods {
		configs = append(configs, vpnServerConfigOf(o, f, i))
	}
	files, err := vpnFiles(o.VPNOptions, command, configs)
	if err != nil {
		return nil, err
	}
	e := vpnEnd{o.VPNOptions, vpnServerBox, vpnServerHealth, vpnServerPorts(o), files}
	box := e.container([]string{"vpn", "server"})
	box.SecurityContext.Capabilities.Add = vpnCapabilities("NET_RAW") // it pings its clients
	docs := append(e.objects(), vpnServices(o, annotations)...)
	return render(vpnServerComment(o), append(docs, e.run(box, selector, tolerations)...)...)
}

// VPNClient renders the end of a reversed VPN that is in a cluster.
func VPNClient(o VPNClientOptions) ([]byte, error) {
	const command = "vpn manifest client"
	var p problems
	selector, tolerations := p.common(o.Common)
	f := p.vpn(o.VPNOptions, "clients", max(len(o.Servers), 1), o.Pods)
	p.vpnClient(o)
	if err := p.fault(command); err != nil {
		return nil, err
	}
	var configs []any
	for i := range o.Pods {
		configs = append(configs, vpnClientConfigOf(o, f, i))
	}
	files, err := vpnFiles(o.VPNOptions, command, configs)
	if err != nil {
		return nil, err
	}
	e := vpnEnd{o.VPNOptions, vpnClientBox, vpnClientHealth, nil, files}
	box := e.container([]string{"vpn", "client"})
	box.SecurityContext.Capabilities.Add = vpnCapabilities()
	run := e.run(box, selector, tolerations)
	spec := &run[0].(*workload).Spec.Template.Spec
	spec.DNSPolicy = "Default" // the way out must not depend on what is reached by it
	spec.InitContainers = []container{vpnForward(o.Common, f)}
	return render(vpnClientComment(o), append(e.objects(), run...)...)
}

// vpnCapabilities are those of both ends, and more: OpenVPN becomes nobody after its start, and somebody who is nobody
// can be killed by root with KILL only.
func vpnCapabilities(more ...string) []string {
	return append(append([]string{"NET_ADMIN"}, more...), "SETUID", "SETGID", "KILL")
}

// vpnForward has the pod forward packets. The settings are those of the pod's network, and read-only to all containers
// but privileged ones.
func vpnForward(c Common, f families) container {
	no, root := false, 0
	script := ""
	for _, path := range f.of("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding") {
		script += "echo 1 > " + path + "\n"
	}
	return container{
		Name: "forward", Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Command: []string{"sh", "-ec", script},
		Resources: resources{Requests: map[string]string{"cpu": c.CPURequest, "memory": c.MemoryRequest}},
		SecurityContext: securityContext{RunAsNonRoot: &no, RunAsUser: &root, RunAsGroup: &root, Privileged: true,
			AllowPrivilegeEscalation: true, ReadOnlyRootFilesystem: true},
	}
}

// vpnEnd is what both ends have in common.
type vpnEnd struct {
	VPNOptions
	component string
	health    int
	ports     []containerPort
	files     map[string]string // configurations
}

// podName is that of one of the pods, if there are several.
func (o VPNOptions) podName(i int) string { return o.Name + "-" + strconv.Itoa(i) }

// secretName is that of the Secret with identity and static key.
func (o VPNOptions) secretName() string {
	if o.Secret != "" {
		return o.Secret
	}
	return o.Name + "-identity"
}

// bundleKey names a bundle in the Secret, of one of some.
func bundleKey(i, of int) string { return numbered("identity", ".pem", i, of) }

func numbered(name, suffix string, i, of int) string {
	if of > 1 {
		name += "-" + strconv.Itoa(i)
	}
	return name + suffix
}

// objects are those that the pods need.
func (e vpnEnd) objects() []document {
	m := objectMeta(e.Common, e.component)
	docs := append(namespaceObject(e.Common, true), accountObject(e.Common, e.component))
	if e.Secret == "" {
		data := map[string]string{}
		for i, text := range e.Bundles {
			data[bundleKey(i, len(e.Bundles))] = text
		}
		if e.Handshake != HandshakeNone {
			data[vpnStaticKey] = e.StaticKey
		}
		own := objectMeta(e.Common, e.component)
		own.Name = e.secretName()
		docs = append(docs, secret{"v1", "Secret", own, "Opaque", data})
	}
	access := networkAccess{Ports: []networkPort{{e.health, "TCP"}}}
	for _, port := range e.ports {
		access.Ports = append(access.Ports, networkPort{port.ContainerPort, port.Protocol})
	}
	return append(docs, configMap{"v1", "ConfigMap", m, e.files},
		networkPolicy{"networking.k8s.io/v1", "NetworkPolicy", m, networkPolicySpec{
			labelSelector{selectorLabels(e.Common)}, []string{"Ingress"}, []networkAccess{access}}})
}

// container is that of the program. Each of several pods has a configuration of its own.
func (e vpnEnd) container(args []string) container {
	file := configDir + "/" + vpnFile(e.VPNOptions, 0)
	var env []variable
	if e.Pods > 1 {
		file = configDir + "/$(" + podNameKey + ").yaml"
		env = []variable{{podNameKey, variableFrom{fieldRef{"metadata.name"}}}}
	}
	live, ready := probes(e.Common, e.health, "HTTP")
	no, root := false, 0
	box := newPod(e.Common, e.component, container{
		Args: append(args, "--config", file), Env: env,
		Ports:         append(e.ports[:len(e.ports):len(e.ports)], containerPort{"health", e.health, "TCP"}),
		LivenessProbe: live, ReadinessProbe: ready,
		VolumeMounts: []volumeMount{
			{Name: runVolume, MountPath: RunDir},
			{Name: "tmp", MountPath: tmpDir}, // OpenVPN wants one that it may write
			{Name: "config", MountPath: configDir, ReadOnly: true},
			{Name: "identity", MountPath: vpnIdentityDir, ReadOnly: true},
			{Name: "tun", MountPath: tunDevice},
		},
	}, nil, nil).Spec.Containers[0]
	// Root, because Kubernetes gives a capability to no other user; OpenVPN itself is nobody.
	box.SecurityContext.RunAsNonRoot, box.SecurityContext.RunAsUser, box.SecurityContext.RunAsGroup = &no, &root, &root
	return box
}

// run is the workload, and what protects several pods of it. One pod ends before the next one begins: both would have
// the same name, and OpenVPN lets in only one of a name.
func (e vpnEnd) run(box container, selector map[string]string, tolerations []toleration) []document {
	m := objectMeta(e.Common, e.component)
	pod := newPod(e.Common, e.component, container{}, selector, tolerations)
	sum := sha256.Sum256([]byte(joined(e.files)))
	// New ranges need new pods.
	pod.Metadata.Annotations = map[string]string{"tombolo.dev/vpn-config": hex.EncodeToString(sum[:8])}
	pod.Spec.SecurityContext = podSecurityContext{SeccompProfile: profile{"RuntimeDefault"}}
	pod.Spec.Spread = spreadOver(e.Common, e.Pods)
	pod.Spec.Containers = []container{box}
	pod.Spec.Volumes = []volume{
		{Name: runVolume, EmptyDir: &emptyDir{"16Mi"}},
		{Name: "tmp", EmptyDir: &emptyDir{"16Mi"}},
		{Name: "config", ConfigMap: &configMapVolume{e.Name, 0o444}},
		{Name: "identity", Secret: &secretVolume{e.secretName(), 0o400}},
		{Name: "tun", HostPath: &hostPath{tunDevice, "CharDevice"}}, // a pod on a node without it does not start, and says so
	}
	w := &workload{"apps/v1", "Deployment", m, workloadSpec{
		Replicas: e.Pods, RevisionHistoryLimit: 3, Selector: labelSelector{selectorLabels(e.Common)}, Template: pod,
	}}
	if e.Pods == 1 {
		w.Spec.Strategy = &updateStrategy{Type: "Recreate"}
		return []document{w}
	}
	w.Kind, w.Spec.ServiceName, w.Spec.PodManagementPolicy = "StatefulSet", e.Name, "Parallel"
	return []document{w, disruptionBudget{"policy/v1", "PodDisruptionBudget", m,
		disruptionBudgetSpec{1, labelSelector{selectorLabels(e.Common)}}}}
}

// vpnServices are those of clients, one for each server, which get in before it is ready; and that of kube-apiserver,
// which is led to a server only when packets pass.
func vpnServices(o VPNServerOptions, annotations map[string]string) []document {
	main := vpnServerPorts(o)[:1]
	var out []document
	for i := range o.Pods {
		svc := serviceObject(o.Common, vpnServerBox, o.Exposed, annotations, main)
		svc.Spec.PublishNotReady = true
		if o.Pods > 1 {
			svc.Metadata.Name, svc.Spec.Selector[podNameLabel] = o.podName(i), o.podName(i)
		}
		out = append(out, svc)
	}
	if o.Connect {
		svc := serviceObject(o.Common, vpnServerBox, Exposed{ServiceType: "ClusterIP"}, nil, vpnServerPorts(o)[1:])
		svc.Metadata.Name += "-connect"
		out = append(out, svc)
	}
	return out
}

func vpnServerPorts(o VPNServerOptions) []containerPort {
	out := []containerPort{{"openvpn", vpnPort, strings.ToUpper(o.Protocol)}}
	if o.Connect {
		out = append(out, containerPort{"connect", vpnConnectPort, "TCP"})
	}
	return out
}
