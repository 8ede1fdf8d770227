// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// MeetOptions configure a discovery service in Kubernetes.
type MeetOptions struct {
	Common
	Exposed
	Hosts          []string // names and addresses in a certificate of its own CA
	TLSSecret      string   // of type kubernetes.io/tls, in place of its own CA
	NoTLS          bool     // clear text, behind a proxy that terminates TLS
	TrustedProxies []string
	StorageSize    string // of the volume with snapshots and CA
	// Etcd are endpoints of an etcd that stores the members, shared by all Replicas.
	Etcd       []string
	EtcdPrefix string
	EtcdSecret string // with ca.crt, tls.crt and tls.key
	Replicas   int
}

// MeetDefaults returns the default options.
func MeetDefaults() MeetOptions {
	out := MeetOptions{Common: commonDefaults(), Exposed: Exposed{ServiceType: "LoadBalancer"}, StorageSize: "1Gi",
		Replicas: 1}
	out.Name = "tombolo-discovery"
	return out
}

const (
	meetFile = "discovery.yaml"
	tlsDir   = "/etc/tombolo/tls"
	etcdDir  = "/etc/tombolo/etcd"
)

// Meet renders the objects that run a discovery service.
func Meet(o MeetOptions) ([]byte, error) {
	var p problems
	selector, tolerations := p.common(o.Common)
	annotations := p.meet(o)
	if err := p.fault("discovery manifest service"); err != nil {
		return nil, err
	}
	config, err := asText(meetConfigOf(o))
	if err != nil {
		return nil, err
	}
	m := objectMeta(o.Common, "discovery")
	docs := append(namespaceObject(o.Common, o.HostNetwork), accountObject(o.Common, "discovery"),
		configMap{"v1", "ConfigMap", m, map[string]string{meetFile: config}},
		serviceObject(o.Common, "discovery", o.Exposed, annotations, exposedPorts("discovery", MeetPort, MeetSTUN)),
		meetWorkload(o, selector, tolerations))
	if o.Replicas > 1 {
		docs = append(docs, disruptionBudget{"policy/v1", "PodDisruptionBudget", m,
			disruptionBudgetSpec{1, labelSelector{selectorLabels(o.Common)}}})
	}
	return render(meetComment(o), docs...)
}

// meet checks the options that only a discovery service has.
func (p *problems) meet(o MeetOptions) map[string]string {
	for _, h := range o.Hosts {
		if net.ParseIP(h) == nil && !isSubdomain(strings.ToLower(h)) {
			p.add("host", "%q is neither a name nor an address", h)
		}
	}
	p.optionalName("tls-secret", o.TLSSecret)
	p.optionalName("etcd-secret", o.EtcdSecret)
	switch {
	case o.NoTLS && (o.TLSSecret != "" || len(o.Hosts) > 0), o.TLSSecret != "" && len(o.Hosts) > 0:
		p.add("no-tls", "one of --host, --tls-secret and --no-tls says how callers come")
	case len(o.Etcd) > 0 && !o.NoTLS && o.TLSSecret == "":
		p.add("tls-secret", "is missing: with --etcd each replica would make a CA of its own "+
			"(or --no-tls behind a proxy that terminates TLS)")
	case !o.NoTLS && o.TLSSecret == "" && len(o.Hosts) == 0:
		p.add("host", "is missing: under which name or address do nodes call the service? Or --tls-secret, or --no-tls")
	}
	for _, text := range o.TrustedProxies {
		if !isNetwork(text) {
			p.add("trusted-proxy", "%q is neither an address nor a network", text)
		}
	}
	p.etcd(o)
	p.quantity("storage-size", o.StorageSize)
	return p.exposed(o.Exposed)
}

func (p *problems) etcd(o MeetOptions) {
	secure := true
	for _, text := range o.Etcd {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || hasControl(text) {
			p.add("etcd", "%q is not http(s)://host:port", text)
			continue
		}
		secure = secure && u.Scheme == "https"
	}
	switch {
	case len(o.Etcd) == 0 && (o.EtcdSecret != "" || o.EtcdPrefix != ""):
		p.add("etcd", "is missing: --etcd-secret and --etcd-prefix mean nothing without")
	case o.EtcdSecret != "" && !secure:
		p.add("etcd-secret", "http shows no certificate")
	case o.EtcdPrefix != "" && (!strings.HasPrefix(o.EtcdPrefix, "/") || hasControl(o.EtcdPrefix)):
		p.add("etcd-prefix", "%q does not begin with /", o.EtcdPrefix)
	}
	most := 1
	if len(o.Etcd) > 0 {
		most = 16
	}
	if o.Replicas < 1 || o.Replicas > most {
		p.add("replicas", "%d is not between 1 and %d: without --etcd the members are in one service's memory", o.Replicas,
			most)
	}
	if o.StorageClass != "" && len(o.Etcd) > 0 {
		p.add("storage-class", "means nothing with --etcd: there is no volume")
	}
}

// meetConfig has the fields of v1alpha1.DiscoveryConfig that this package sets; a test
// decodes it strictly into that type.
type meetConfig struct {
	APIVersion     string      `yaml:"apiVersion"`
	Kind           string      `yaml:"kind"`
	StateDir       string      `yaml:"stateDir"`
	RunDir         string      `yaml:"runDir"`
	Listen         string      `yaml:"listen"`
	Admin          configAdmin `yaml:"admin"`
	Log            configLog   `yaml:"log"`
	TLS            meetTLS     `yaml:"tls"`
	Store          *meetStore  `yaml:"store,omitempty"`
	TrustedProxies []string    `yaml:"trustedProxies,omitempty"`
	DrainTimeout   string      `yaml:"drainTimeout"`
}

type meetTLS struct {
	Self     bool     `yaml:"self,omitempty"`
	Hosts    []string `yaml:"hosts,omitempty"`
	CertFile string   `yaml:"certFile,omitempty"`
	KeyFile  string   `yaml:"keyFile,omitempty"`
	None     bool     `yaml:"none,omitempty"`
}

type meetStore struct {
	Etcd meetEtcd `yaml:"etcd"`
}

type meetEtcd struct {
	Endpoints []string `yaml:"endpoints"`
	Prefix    string   `yaml:"prefix,omitempty"`
	CAFile    string   `yaml:"caFile,omitempty"`
	CertFile  string   `yaml:"certFile,omitempty"`
	KeyFile   string   `yaml:"keyFile,omitempty"`
}

func meetConfigOf(o MeetOptions) meetConfig {
	c := meetConfig{
		APIVersion: v1alpha1.Version, Kind: v1alpha1.KindDiscoveryConfig, StateDir: StateRoot + "/discovery", RunDir: RunDir,
		Listen: ":" + strconv.Itoa(MeetPort), Admin: configAdmin{":" + strconv.Itoa(MeetAdmin)},
		Log: configLog{"json", o.LogLevel},
		TLS: meetTLS{Self: true, Hosts: o.Hosts}, TrustedProxies: o.TrustedProxies, DrainTimeout: o.DrainTimeout.String(),
	}
	if o.HostNetwork {
		c.Admin.Listen = loopback + c.Admin.Listen
	}
	switch {
	case o.NoTLS:
		c.TLS = meetTLS{None: true}
	case o.TLSSecret != "":
		c.TLS = meetTLS{CertFile: tlsDir + "/tls.crt", KeyFile: tlsDir + "/tls.key"}
	}
	if len(o.Etcd) > 0 {
		e := meetEtcd{Endpoints: o.Etcd, Prefix: o.EtcdPrefix}
		if o.EtcdSecret != "" {
			e.CAFile, e.CertFile, e.KeyFile = etcdDir+"/ca.crt", etcdDir+"/tls.crt", etcdDir+"/tls.key"
		}
		c.Store = &meetStore{e}
	}
	return c
}

func meetComment(o MeetOptions) []string {
	out := []string{"Made by 'tombolo discovery manifest service'."}
	switch {
	case len(o.Etcd) > 0:
		out = append(out, "The members are in etcd; what the pods keep themselves may be lost.")
	case o.TLSSecret == "" && !o.NoTLS:
		out = append(out, "The pin of its CA, for nodes: "+
			"kubectl -n "+o.Namespace+" exec "+o.Name+"-0 -- tombolo discovery status")
	}
	return out
}

func meetWorkload(o MeetOptions, selector map[string]string, tolerations []toleration) document {
	live, ready := probes(o.Common, MeetAdmin, "HTTP")
	box := container{
		Args: []string{"discovery", "--config", configDir + "/" + meetFile},
		Ports: ports(o.Common, append(exposedPorts("discovery", MeetPort, MeetSTUN),
			containerPort{"admin", MeetAdmin, "TCP"})...),
		LivenessProbe:  live,
		ReadinessProbe: ready,
		VolumeMounts: []volumeMount{
			{Name: stateVolume, MountPath: StateRoot},
			{Name: runVolume, MountPath: RunDir},
			{Name: "config", MountPath: configDir, ReadOnly: true},
		},
	}
	volumes := []volume{{Name: "config", ConfigMap: &configMapVolume{o.Name, 0o444}},
		{Name: runVolume, EmptyDir: &emptyDir{"16Mi"}}}
	for _, s := range []struct{ name, secret, dir string }{{"tls", o.TLSSecret, tlsDir}, {"etcd", o.EtcdSecret, etcdDir}} {
		if s.secret == "" {
			continue
		}
		volumes = append(volumes, volume{Name: s.name, Secret: &secretVolume{s.secret, secretMode}})
		box.VolumeMounts = append(box.VolumeMounts, volumeMount{Name: s.name, MountPath: s.dir, ReadOnly: true})
	}
	pod := newPod(o.Common, "discovery", box, selector, tolerations)
	w := workload{"apps/v1", "StatefulSet", objectMeta(o.Common, "discovery"), workloadSpec{
		Replicas: o.Replicas, RevisionHistoryLimit: 3, Selector: labelSelector{selectorLabels(o.Common)},
	}}
	if len(o.Etcd) == 0 {
		pod.Spec.Volumes = volumes
		w.Spec.Template, w.Spec.ServiceName = pod, o.Name
		w.Spec.ClaimTemplates = []claim{stateClaim(o.Common, o.StorageSize)}
		return w
	}
	pod.Spec.Volumes = append(volumes, volume{Name: stateVolume, EmptyDir: &emptyDir{"16Mi"}})
	pod.Spec.Spread = spreadOver(o.Common, o.Replicas)
	w.Kind, w.Spec.Template = "Deployment", pod
	w.Spec.Strategy = &updateStrategy{"RollingUpdate", rollingUpdate{MaxUnavailable: 0, MaxSurge: 1}}
	if o.HostNetwork {
		w.Spec.Strategy.RollingUpdate = rollingUpdate{MaxUnavailable: 1, MaxSurge: 0}
	}
	return w
}
