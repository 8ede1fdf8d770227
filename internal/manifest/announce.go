// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// AnnounceOptions configure how nodes of a Kubernetes cluster announce themselves.
type AnnounceOptions struct {
	Common
	Secret     string   // name of a Secret in the namespace with the cluster's secrets
	SecretKeys []string // its keys, the newest secret first
	ClusterID  string   // for services of the older protocol
	Services   []string // URLs
	Protocol   string
	Pin        string // of the services' CA
	CAConfig   string // ConfigMap with the services' CAs, ca.crt
	Insecure   bool   // permit http
	// Kubernetes makes the nodes find each other through the API server,
	// NodeAnnotations makes them read Talos' annotations as well.
	Kubernetes, NodeAnnotations bool
	// StateHostPath is a directory of each node that keeps the member's key. Without it
	// a new pod is a new member, and the one before says farewell.
	StateHostPath string
}

// AnnounceDefaults returns the default options.
func AnnounceDefaults() AnnounceOptions {
	out := AnnounceOptions{Common: commonDefaults(), SecretKeys: []string{"secret"}, Protocol: "auto", Kubernetes: true}
	out.Name, out.HostNetwork, out.Tolerations = "tombolo-announce", true, []string{"*"}
	out.CPURequest, out.MemoryRequest, out.MemoryLimit = "10m", "32Mi", "256Mi"
	return out
}

const (
	meshFile    = "mesh.yaml"
	secretDir   = "/etc/tombolo/secret"
	meshCADir   = "/etc/tombolo/ca"
	secretMode  = 0o440 // root's, and readable to the pod's group
	nodeNameKey = "NODE_NAME"
)

// Announce renders a DaemonSet whose pods are members, each for its node.
func Announce(o AnnounceOptions) ([]byte, error) {
	var p problems
	selector, tolerations := p.common(o.Common)
	p.announce(o)
	if err := p.fault("discovery manifest announce"); err != nil {
		return nil, err
	}
	config, err := asText(meshConfigOf(o))
	if err != nil {
		return nil, err
	}
	m := objectMeta(o.Common, "announce")
	docs := append(namespaceObject(o.Common, o.HostNetwork || o.StateHostPath != ""), accountObject(o.Common, "announce"))
	comment := []string{"Made by 'tombolo discovery manifest announce'."}
	if o.Kubernetes {
		comment = append(comment, "Apply the kind Member, and the policy that holds each node to its own name, first: "+
			"tombolo discovery manifest | kubectl apply -f -")
		const group = "rbac.authorization.k8s.io"
		role := meta{Name: o.Namespace + "-" + o.Name, Labels: m.Labels}
		docs = append(docs, clusterRole{group + "/v1", "ClusterRole", role,
			append(memberRules(o.NodeAnnotations), podRule())},
			clusterRoleBinding{group + "/v1", "ClusterRoleBinding", role, roleRef{group, "ClusterRole", role.Name},
				[]subject{{Kind: "ServiceAccount", Namespace: o.Namespace, Name: o.Name}}})
	}
	comment = append(comment, "The cluster's secret: tombolo discovery secret create - | "+
		"kubectl -n "+o.Namespace+" create secret generic "+o.Secret+" --from-file="+o.SecretKeys[0]+"=/dev/stdin")
	if o.StateHostPath != "" {
		comment = append(comment, "On each node: install -d -o 65532 -g 65532 -m 0700 "+o.StateHostPath)
	}
	docs = append(docs, configMap{"v1", "ConfigMap", m, map[string]string{meshFile: config}},
		announceWorkload(o, selector, tolerations))
	return render(comment, docs...)
}

// announce checks the options that only announcements have.
func (p *problems) announce(o AnnounceOptions) {
	if o.Secret == "" {
		p.add("secret", "is missing: name a Secret of the namespace that holds the cluster's secret")
	}
	p.optionalName("secret", o.Secret)
	p.optionalName("ca-config-map", o.CAConfig)
	p.secretKeys(o.SecretKeys)
	if len(o.ClusterID) > limit.DiscoveryID || hasControl(o.ClusterID) {
		p.add("cluster-id", "%q is no id: at most %d bytes", o.ClusterID, limit.DiscoveryID)
	}
	p.oneOf("protocol", o.Protocol, "auto", "native", "sidero")
	if o.Protocol == "sidero" && o.ClusterID == "" {
		p.add("cluster-id", "is missing: the older protocol needs it")
	}
	p.announceServices(o)
	if !o.Kubernetes && (len(o.Services) == 0 || o.NodeAnnotations) {
		p.add("kubernetes", "without it --service is needed, and --node-annotations means nothing")
	}
	if o.StateHostPath != "" {
		p.hostPath("state-host-path", o.StateHostPath)
	}
	if o.StorageClass != "" {
		p.add("storage-class", "means nothing: there is no volume that is claimed")
	}
}

// secretKeys checks the names of a cluster's secrets in a Secret.
func (p *problems) secretKeys(keys []string) {
	if len(keys) == 0 || len(keys) > limit.ClusterSecrets {
		p.add("secret-key", "there are %d, 1 to %d are needed", len(keys), limit.ClusterSecrets)
	}
	for i, key := range keys {
		if !isSecretKey(key) {
			p.add("secret-key", "%q is no key of a Secret", key)
		}
		if slices.Contains(keys[:i], key) {
			p.add("secret-key", "%q stands twice", key)
		}
	}
}

func (p *problems) announceServices(o AnnounceOptions) {
	if len(o.Services) > limit.DiscoveryServices {
		p.add("service", "there are %d, at most %d are allowed", len(o.Services), limit.DiscoveryServices)
	}
	secure := false
	for _, text := range o.Services {
		u, err := url.Parse(text)
		switch {
		case err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
			u.Scheme != "http" && u.Scheme != "https":
			p.add("service", "%q is not https://host[:port]", text)
		case u.Scheme == "http" && !o.Insecure:
			p.add("service", "%q shows all traffic to anybody on the way: write https, or --insecure", text)
		case u.Scheme == "http" && (o.Pin != "" || o.CAConfig != ""):
			p.add("service", "%q has no certificate for --pin or --ca-config-map to check", text)
		}
		secure = secure || err == nil && u.Scheme == "https"
	}
	switch {
	case o.Pin != "" && o.CAConfig != "":
		p.add("pin", "stands in place of --ca-config-map: give one of them")
	case secure && o.Pin == "" && o.CAConfig == "":
		p.add("pin", "is missing, or --ca-config-map: there are no CAs in the image")
	case o.Pin != "" && (len(o.Pin) != 43 ||
		strings.Trim(o.Pin, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != ""):
		p.add("pin", "%q is no pin: 43 characters, as 'tombolo discovery status' shows it", o.Pin)
	}
}

// meshConfig has the fields of v1alpha1.MeshConfig that this package sets.
type meshConfig struct {
	APIVersion   string        `yaml:"apiVersion"`
	Kind         string        `yaml:"kind"`
	Cluster      meshCluster   `yaml:"cluster"`
	Node         meshNode      `yaml:"node"`
	Announce     *meshAnnounce `yaml:"announce,omitempty"`
	Sources      meshSources   `yaml:"sources"`
	Mesh         *meshSection  `yaml:"mesh,omitempty"`
	HealthListen string        `yaml:"healthListen"`
	Log          configLog     `yaml:"log"`
}

type meshAnnounce struct {
	PodRanges bool `yaml:"podRanges"`
}

type meshLinked struct {
	Cluster string `yaml:"cluster"`
}

type meshSection struct {
	Accept   []string `yaml:"accept,omitempty"`
	Keep     bool     `yaml:"keep,omitempty"`
	Policies []string `yaml:"policies,omitempty"`
	Join     string   `yaml:"join,omitempty"`
}

type meshCluster struct {
	SecretFiles []string `yaml:"secretFiles"`
	ID          string   `yaml:"id,omitempty"`
}

type meshNode struct {
	StateDir string `yaml:"stateDir"`
	RunDir   string `yaml:"runDir"`
}

type meshSources struct {
	Services   []meshService   `yaml:"services,omitempty"`
	Kubernetes *meshKubernetes `yaml:"kubernetes,omitempty"`
	Linked     *meshLinked     `yaml:"linked,omitempty"`
}

type meshService struct {
	URL      string `yaml:"url"`
	Protocol string `yaml:"protocol"`
	CAFile   string `yaml:"caFile,omitempty"`
	Pin      string `yaml:"pin,omitempty"`
	Insecure bool   `yaml:"insecure,omitempty"`
}

type meshKubernetes struct {
	InCluster bool     `yaml:"inCluster"`
	Read      []string `yaml:"read,omitempty,flow"`
}

func meshConfigOf(o AnnounceOptions) meshConfig {
	c := meshConfig{
		APIVersion: v1alpha1.Version, Kind: v1alpha1.KindMeshConfig, Cluster: meshCluster{ID: o.ClusterID},
		Node: meshNode{StateRoot + "/mesh", RunDir}, HealthListen: ":" + strconv.Itoa(MemberHealth),
		Log: configLog{"json", o.LogLevel},
	}
	if o.HostNetwork {
		c.HealthListen = loopback + c.HealthListen
	}
	for _, key := range o.SecretKeys {
		c.Cluster.SecretFiles = append(c.Cluster.SecretFiles, secretDir+"/"+key)
	}
	for _, u := range o.Services {
		s := meshService{URL: u, Protocol: o.Protocol, Pin: o.Pin, Insecure: o.Insecure}
		if o.CAConfig != "" {
			s.CAFile = meshCADir + "/ca.crt"
		}
		c.Sources.Services = append(c.Sources.Services, s)
	}
	if o.Kubernetes {
		c.Sources.Kubernetes = &meshKubernetes{InCluster: true}
		if o.NodeAnnotations {
			c.Sources.Kubernetes.Read = []string{"members", "annotations"}
		}
	}
	return c
}

func announceWorkload(o AnnounceOptions, selector map[string]string, tolerations []toleration) document {
	live, ready := probes(o.Common, MemberHealth, "HTTP")
	box := container{
		Args:           []string{"discovery", "announce", "--config", configDir + "/" + meshFile},
		Env:            []variable{{nodeNameKey, variableFrom{fieldRef{"spec.nodeName"}}}},
		Ports:          ports(o.Common, containerPort{"health", MemberHealth, "TCP"}),
		LivenessProbe:  live,
		ReadinessProbe: ready,
		VolumeMounts: []volumeMount{
			{Name: stateVolume, MountPath: StateRoot + "/mesh"},
			{Name: runVolume, MountPath: RunDir},
			{Name: "config", MountPath: configDir, ReadOnly: true},
			{Name: "secret", MountPath: secretDir, ReadOnly: true},
		},
	}
	state := volume{Name: stateVolume, EmptyDir: &emptyDir{"128Mi"}}
	if o.StateHostPath != "" {
		// "Directory", not "DirectoryOrCreate": kubelet would create it for root only.
		state = volume{Name: stateVolume, HostPath: &hostPath{o.StateHostPath, "Directory"}}
	} else {
		box.Args = append(box.Args, "--leave")
	}
	volumes := []volume{
		{Name: "config", ConfigMap: &configMapVolume{o.Name, 0o444}},
		{Name: "secret", Secret: &secretVolume{o.Secret, secretMode}},
		state, {Name: runVolume, EmptyDir: &emptyDir{"16Mi"}},
	}
	if o.CAConfig != "" {
		volumes = append(volumes, volume{Name: "ca", ConfigMap: &configMapVolume{o.CAConfig, 0o444}})
		box.VolumeMounts = append(box.VolumeMounts, volumeMount{Name: "ca", MountPath: meshCADir, ReadOnly: true})
	}
	pod := newPod(o.Common, "announce", box, selector, tolerations)
	pod.Spec.Volumes, pod.Spec.AutomountToken = volumes, o.Kubernetes
	return daemonSet{"apps/v1", "DaemonSet", objectMeta(o.Common, "announce"), daemonSetSpec{
		RevisionHistoryLimit: 3,
		UpdateStrategy:       updateStrategy{"RollingUpdate", rollingUpdate{MaxUnavailable: 1, MaxSurge: 0}},
		Selector:             labelSelector{selectorLabels(o.Common)},
		Template:             pod,
	}}
}
