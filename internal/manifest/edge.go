// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strconv"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// EdgeOptions configure an edge in Kubernetes.
type EdgeOptions struct {
	Common
	Exposed
	Tenants  string // name of a ConfigMap with a file for each tenant; empty: none
	Objects  bool   // tenants are objects of kind EdgeTenant, in all namespaces
	Policies string // name of a ConfigMap with files of the policy; empty: none
	TLSPort  int    // of the Service
	Connect  int    // port of the Service for CONNECT; 0: none
	From     []string
	Replicas int
}

// EdgeDefaults returns the default options.
func EdgeDefaults() EdgeOptions {
	out := EdgeOptions{Common: commonDefaults(), Exposed: Exposed{ServiceType: "LoadBalancer"}, TLSPort: 443, Replicas: 2}
	out.Name, out.Tenants = "tombolo-edge", "tombolo-edge-tenants"
	return out
}

const (
	edgeFile     = "edge.yaml"
	tenantsRole  = "tombolo-edge-tenants" // of deploy/kubernetes/edgetenants.yaml
	tenantsDir   = "/etc/tombolo/tenants"
	policiesDir  = "/etc/tombolo/policies"
	edgeTLS      = 8443 // in the container: ports below 1024 need a capability
	edgeConnect  = 8132
	edgeHealth   = 8447
	edgeTLSName  = "tls"
	edgeConnName = "connect"
)

// Edge renders the objects that run an edge.
func Edge(o EdgeOptions) ([]byte, error) {
	var p problems
	selector, tolerations := p.common(o.Common)
	annotations := p.edge(o)
	if err := p.fault("edge manifest"); err != nil {
		return nil, err
	}
	config, err := asText(edgeConfigOf(o))
	if err != nil {
		return nil, err
	}
	m := objectMeta(o.Common, "edge")
	svc := serviceObject(o.Common, "edge", o.Exposed, annotations, edgePorts(o))
	svc.Spec.Ports[0].Port = o.TLSPort
	if o.Connect > 0 {
		svc.Spec.Ports[1].Port = o.Connect
	}
	docs := append(namespaceObject(o.Common, o.HostNetwork), accountObject(o.Common, "edge"))
	if o.Objects {
		const group = "rbac.authorization.k8s.io"
		docs = append(docs, clusterRoleBinding{group + "/v1", "ClusterRoleBinding",
			meta{Name: o.Namespace + "-" + o.Name, Labels: m.Labels}, roleRef{group, "ClusterRole", tenantsRole},
			[]subject{{Kind: "ServiceAccount", Namespace: o.Namespace, Name: o.Name}}})
	}
	docs = append(docs, configMap{"v1", "ConfigMap", m, map[string]string{edgeFile: config}}, svc,
		edgeWorkload(o, selector, tolerations))
	if o.Replicas > 1 {
		docs = append(docs, disruptionBudget{"policy/v1", "PodDisruptionBudget", m,
			disruptionBudgetSpec{1, labelSelector{selectorLabels(o.Common)}}})
	}
	return render(edgeComment(o), docs...)
}

// edge checks the options that only an edge has.
func (p *problems) edge(o EdgeOptions) map[string]string {
	if o.Tenants == "" && !o.Objects {
		p.add("tenants", "is missing: name the ConfigMap with the tenants, or use --watch-tenants")
	}
	p.optionalName("tenants", o.Tenants)
	p.optionalName("policies", o.Policies)
	if o.TLSPort < 1 || o.TLSPort > 65535 {
		p.add("port", "%d is no port", o.TLSPort)
	}
	if o.Connect < 0 || o.Connect > 65535 || o.Connect == o.TLSPort {
		p.add("connect-port", "%d is no port, or that of --port", o.Connect)
	}
	for _, text := range o.From {
		if !isNetwork(text) {
			p.add("proxy-protocol-from", "%q is neither a CIDR nor an address", text)
		}
	}
	if o.Replicas < 1 || o.Replicas > limit.SessionsPerCluster {
		p.add("replicas", "%d is not between 1 and %d", o.Replicas, limit.SessionsPerCluster)
	}
	if o.StorageClass != "" {
		p.add("storage-class", "means nothing: there is no volume")
	}
	return p.exposed(o.Exposed)
}

func edgePorts(o EdgeOptions) []containerPort {
	out := []containerPort{{edgeTLSName, edgeTLS, "TCP"}}
	if o.Connect > 0 {
		out = append(out, containerPort{edgeConnName, edgeConnect, "TCP"})
	}
	return out
}

// edgeConfig has the fields of v1alpha1.EdgeConfig that this package sets; a test gives it to the program.
type edgeConfig struct {
	APIVersion   string         `yaml:"apiVersion"`
	Kind         string         `yaml:"kind"`
	Listeners    []edgeListener `yaml:"listeners"`
	Tenants      []string       `yaml:"tenants,omitempty"`
	Kubernetes   *struct{}      `yaml:"kubernetes,omitempty"`
	Policies     []string       `yaml:"policies,omitempty"`
	HealthListen string         `yaml:"healthListen"`
	RunDir       string         `yaml:"runDir"`
	Log          configLog      `yaml:"log"`
	DrainTimeout string         `yaml:"drainTimeout"`
}

type edgeListener struct {
	Name          string     `yaml:"name"`
	Listen        string     `yaml:"listen"`
	Protocol      string     `yaml:"protocol"`
	ProxyProtocol *edgeProxy `yaml:"proxyProtocol,omitempty"`
}

type edgeProxy struct {
	From []string `yaml:"from"`
}

func edgeConfigOf(o EdgeOptions) edgeConfig {
	c := edgeConfig{
		APIVersion: v1alpha1.Version, Kind: v1alpha1.KindEdgeConfig,
		HealthListen: ":" + strconv.Itoa(edgeHealth), RunDir: RunDir, Log: configLog{"json", o.LogLevel},
		DrainTimeout: o.DrainTimeout.String(),
	}
	if o.HostNetwork {
		c.HealthListen = loopback + c.HealthListen
	}
	if o.Tenants != "" {
		c.Tenants = []string{tenantsDir}
	}
	if o.Objects {
		c.Kubernetes = &struct{}{}
	}
	if o.Policies != "" {
		c.Policies = []string{policiesDir}
	}
	for _, port := range edgePorts(o) { // the protocols are called as the ports are
		l := edgeListener{Name: port.Name, Listen: ":" + strconv.Itoa(port.ContainerPort), Protocol: port.Name}
		if len(o.From) > 0 {
			l.ProxyProtocol = &edgeProxy{o.From}
		}
		c.Listeners = append(c.Listeners, l)
	}
	return c
}

func edgeComment(o EdgeOptions) []string {
	create := "kubectl -n " + o.Namespace + " create configmap "
	out := []string{"Made by 'tombolo edge manifest'."}
	if o.Objects {
		out = append(out,
			"Apply the kind EdgeTenant, and the role that may read it, first: deploy/kubernetes/edgetenants.yaml")
	}
	if o.Tenants != "" {
		out = append(out, "The pods wait for the tenants:", "  "+create+o.Tenants+" --from-file=tenants/")
	}
	if o.Policies != "" {
		out = append(out, "The pods wait for the policies:", "  "+create+o.Policies+" --from-file=policies/")
	}
	return out
}

func edgeWorkload(o EdgeOptions, selector map[string]string, tolerations []toleration) document {
	live, ready := probes(o.Common, edgeHealth, "HTTP")
	box := container{
		Args:          []string{"edge", "--config", configDir + "/" + edgeFile},
		Ports:         ports(o.Common, append(edgePorts(o), containerPort{"health", edgeHealth, "TCP"})...),
		LivenessProbe: live, ReadinessProbe: ready,
		VolumeMounts: []volumeMount{{Name: runVolume, MountPath: RunDir}},
	}
	volumes := []volume{{Name: runVolume, EmptyDir: &emptyDir{"16Mi"}}}
	for _, v := range []struct{ name, configMap, dir string }{
		{"config", o.Name, configDir}, {"tenants", o.Tenants, tenantsDir}, {"policies", o.Policies, policiesDir},
	} {
		if v.configMap == "" {
			continue
		}
		volumes = append(volumes, volume{Name: v.name, ConfigMap: &configMapVolume{v.configMap, 0o444}})
		box.VolumeMounts = append(box.VolumeMounts, volumeMount{Name: v.name, MountPath: v.dir, ReadOnly: true})
	}
	pod := newPod(o.Common, "edge", box, selector, tolerations)
	pod.Spec.Volumes, pod.Spec.Spread = volumes, spreadOver(o.Common, o.Replicas)
	pod.Spec.AutomountToken = o.Objects
	w := workload{"apps/v1", "Deployment", objectMeta(o.Common, "edge"), workloadSpec{
		Replicas: o.Replicas, RevisionHistoryLimit: 3, Selector: labelSelector{selectorLabels(o.Common)}, Template: pod,
	}}
	w.Spec.Strategy = &updateStrategy{"RollingUpdate", rollingUpdate{MaxUnavailable: 0, MaxSurge: 1}}
	if o.HostNetwork {
		// The old and the new pod cannot share the ports of one node.
		w.Spec.Strategy.RollingUpdate = rollingUpdate{MaxUnavailable: 1, MaxSurge: 0}
	}
	return w
}
