// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// HubOptions configure a hub in Kubernetes.
type HubOptions struct {
	Common
	Exposed
	Advertise   []string // host or host:port, at least one
	Clusters    []string // clusters to register
	StorageSize string   // of the volume with CA, tokens and cluster records
	// SocketHostPath is a directory of the node in place of /run/tombolo, so that
	// kube-apiservers of that node reach the sockets.
	SocketHostPath string
	// SocketProtocols are made for each of Clusters: konnectivity, connect.
	SocketProtocols []string
	SocketMode      string
}

// HubDefaults returns the default options.
func HubDefaults() HubOptions {
	out := HubOptions{Common: commonDefaults(), Exposed: Exposed{ServiceType: "LoadBalancer"}, StorageSize: "1Gi",
		SocketMode: "0600"}
	out.Name = "tombolo-hub"
	return out
}

// Hub renders the objects that run a hub.
func Hub(o HubOptions) ([]byte, error) {
	var p problems
	selector, tolerations := p.common(o.Common)
	annotations := p.hub(o)
	if err := p.fault("hub manifest"); err != nil {
		return nil, err
	}
	config, err := hubConfig(o)
	if err != nil {
		return nil, err
	}
	docs := namespaceObject(o.Common, o.HostNetwork || o.SocketHostPath != "")
	docs = append(docs,
		accountObject(o.Common, "hub"),
		configMap{"v1", "ConfigMap", objectMeta(o.Common, "hub"), map[string]string{configFile: config}},
		serviceObject(o.Common, "hub", o.Exposed, annotations, exposedPorts("hub", HubPort)),
		hubWorkload(o, selector, tolerations))
	return render(hubComment(o), docs...)
}

// hub checks the options that only a hub has, and returns the parsed annotations.
func (p *problems) hub(o HubOptions) map[string]string {
	if len(o.Advertise) == 0 {
		p.add("advertise", "is missing: agents must know under which host or host:port they reach the hub")
	}
	for _, a := range o.Advertise {
		if !isHostPort(a) {
			p.add("advertise", "%q is not host or host:port", a)
		}
	}
	for i, c := range o.Clusters {
		p.label("cluster", c, 63)
		for _, other := range o.Clusters[:i] {
			if c == other {
				p.add("cluster", "%q stands twice", c)
			}
		}
	}
	p.quantity("storage-size", o.StorageSize)
	if o.SocketHostPath != "" {
		p.hostPath("socket-host-path", o.SocketHostPath)
	}
	for _, s := range o.SocketProtocols {
		p.oneOf("socket", s, "konnectivity", "connect")
	}
	if len(o.SocketProtocols) > 0 && len(o.Clusters) == 0 {
		p.add("socket", "no --cluster is named that could have sockets")
	}
	if mode, err := strconv.ParseUint(o.SocketMode, 8, 32); err != nil || mode > 0o777 || mode&0o600 != 0o600 {
		p.add("socket-mode", "%q is not an octal mode such as 0600 or 0660", o.SocketMode)
	}
	return p.exposed(o.Exposed)
}

func isHostPort(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return false
		}
		host = h
	}
	return net.ParseIP(host) != nil || isSubdomain(strings.ToLower(host))
}

// config has the fields of v1alpha1.HubConfig that this package sets, in their usual
// order; a test decodes it strictly into that type.
type config struct {
	APIVersion   string          `yaml:"apiVersion"`
	Kind         string          `yaml:"kind"`
	StateDir     string          `yaml:"stateDir"`
	RunDir       string          `yaml:"runDir"`
	Listen       string          `yaml:"listen"`
	Advertise    []string        `yaml:"advertise"`
	Admin        configAdmin     `yaml:"admin"`
	Log          configLog       `yaml:"log"`
	Sockets      configSockets   `yaml:"sockets"`
	DrainTimeout string          `yaml:"drainTimeout"`
	Clusters     []configCluster `yaml:"clusters,omitempty"`
}

type configAdmin struct {
	Listen string `yaml:"listen"`
}

type configLog struct {
	Format string `yaml:"format"`
	Level  string `yaml:"level"`
}

type configSockets struct {
	Mode string `yaml:"mode"`
}

type configCluster struct {
	Name    string         `yaml:"name"`
	Sockets []configSocket `yaml:"sockets,omitempty"`
}

type configSocket struct {
	Protocol string `yaml:"protocol"`
}

func hubConfig(o HubOptions) (string, error) {
	c := config{
		APIVersion: v1alpha1.Version, Kind: v1alpha1.KindHubConfig,
		StateDir: StateRoot + "/hub", RunDir: RunDir,
		Listen: ":" + strconv.Itoa(HubPort), Advertise: o.Advertise,
		// Kubelet's probes come from outside the pod; on the host's network
		// they come from the host itself.
		Admin:        configAdmin{":" + strconv.Itoa(AdminPort)},
		Log:          configLog{"json", o.LogLevel},
		Sockets:      configSockets{o.SocketMode},
		DrainTimeout: o.DrainTimeout.String(),
	}
	if o.HostNetwork {
		c.Admin.Listen = loopback + c.Admin.Listen
	}
	protocols := o.SocketProtocols
	if len(protocols) == 0 && o.SocketHostPath != "" {
		protocols = []string{"konnectivity"}
	}
	for _, name := range o.Clusters {
		cluster := configCluster{Name: name}
		for _, protocol := range protocols {
			cluster.Sockets = append(cluster.Sockets, configSocket{protocol})
		}
		c.Clusters = append(c.Clusters, cluster)
	}
	return asText(c)
}

func hubComment(o HubOptions) []string {
	out := []string{
		"Made by 'tombolo hub manifest'.",
		"A join line for a cluster: kubectl -n " + o.Namespace + " exec " + o.Name +
			"-0 -- tombolo token create --cluster NAME",
	}
	if o.SocketHostPath != "" {
		out = append(out, "The node's directory for the sockets must exist and belong to uid 65532: "+
			"install -d -o 65532 -g 65532 -m 0755 DIRECTORY")
	}
	return out
}

func hubWorkload(o HubOptions, selector map[string]string, tolerations []toleration) document {
	live, ready := probes(o.Common, AdminPort, "HTTPS")
	pod := newPod(o.Common, "hub", container{
		Args:           []string{"hub", "--config", configDir + "/" + configFile},
		Ports:          ports(o.Common, append(exposedPorts("hub", HubPort), containerPort{"admin", AdminPort, "TCP"})...),
		LivenessProbe:  live,
		ReadinessProbe: ready,
		VolumeMounts: []volumeMount{
			{Name: stateVolume, MountPath: StateRoot},
			{Name: runVolume, MountPath: RunDir},
			{Name: "config", MountPath: configDir, ReadOnly: true},
		},
	}, selector, tolerations)
	run := volume{Name: runVolume, EmptyDir: &emptyDir{"16Mi"}}
	if o.SocketHostPath != "" {
		// "Directory", not "DirectoryOrCreate": kubelet would create it for root only.
		run = volume{Name: runVolume, HostPath: &hostPath{o.SocketHostPath, "Directory"}}
	}
	pod.Spec.Volumes = []volume{{Name: "config", ConfigMap: &configMapVolume{o.Name, 0o444}}, run}
	return workload{"apps/v1", "StatefulSet", objectMeta(o.Common, "hub"), workloadSpec{
		Replicas: 1, RevisionHistoryLimit: 3, ServiceName: o.Name,
		Selector:       labelSelector{selectorLabels(o.Common)},
		Template:       pod,
		ClaimTemplates: []claim{stateClaim(o.Common, o.StorageSize)},
	}}
}
