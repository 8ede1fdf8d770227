// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// The two forms of routed mode in Kubernetes.
const (
	RouteSidecar    = "sidecar"    // added to the pods of a workload that is there
	RouteDeployment = "deployment" // a Deployment of its own, with a container of the user's

	RouteObjects = "objects" // of a sidecar, what is applied
	RoutePatch   = "patch"   // of a sidecar, what the workload is patched with
)

// RouteOptions configure routed mode in pods. The routes are those of the pod: what else runs in it uses them.
type RouteOptions struct {
	Common
	Kind        string
	Workload    string   // [KIND/]NAME that gets the sidecar
	Only        string   // objects or patch, of a sidecar; empty: both
	Run         string   // image of the container beside it, in a Deployment of its own
	RunArgs     []string // its arguments
	Cluster     string
	Hubs        []string // host:port
	Ranges      []string // CIDR
	Maps        []string // CIDR=CIDR
	DNS         string   // address, with a port if it is not 53
	Zone        string   // under which the cluster's names are asked for
	Nameservers []string // the pod's own, for all other names
	Searches    []string // the pod's own; nil: those of its namespace
	Secret      string   // name of a Secret in the namespace with CLUSTER.pem
	HealthPort  int
}

// RouteDefaults returns the default options.
func RouteDefaults() RouteOptions {
	out := RouteOptions{Common: commonDefaults(), Kind: RouteDeployment, HealthPort: 8448}
	out.Name = routeBox
	return out
}

const (
	routeBox       = "tombolo-route" // of the container, and before the names of volumes: the pod has its own
	routeFile      = "route.yaml"
	certificateDir = "/etc/tombolo/certificate"
	tunDevice      = "/dev/net/tun"
	resolvConf     = "resolv.conf"
	// The defaults of the program, of each family.
	routeLink4, routeLink6         = "192.0.0.8", "fd74:6f6d:626f::8"
	routeResolver4, routeResolver6 = "192.0.0.53", "fd74:6f6d:626f::53"
	podNdots                       = "5" // as kubelet writes it
)

// Route renders routed mode in pods: a patch of a workload, or a Deployment.
func Route(o RouteOptions) ([]byte, error) {
	var p problems
	selector, tolerations := p.common(o.Common)
	f := p.route(o)
	if err := p.fault("route manifest"); err != nil {
		return nil, err
	}
	if o.Searches == nil {
		o.Searches = []string{o.Namespace + ".svc.cluster.local", "svc.cluster.local", "cluster.local"}
	}
	config, err := asText(routeConfigOf(o, f))
	if err != nil {
		return nil, err
	}
	data := map[string]string{routeFile: config}
	if o.DNS != "" {
		data[resolvConf] = resolvConfOf(o)
	}
	sum := sha256.Sum256([]byte(config + data[resolvConf]))
	changed := map[string]string{"tombolo.dev/route-config": hex.EncodeToString(sum[:8])} // new ranges need new pods
	files := configMap{"v1", "ConfigMap", objectMeta(o.Common, "route"), data}
	if o.Kind == RouteSidecar {
		docs := []document{files, routePatch(o, f, changed)}
		switch o.Only {
		case RouteObjects:
			docs = docs[:1]
		case RoutePatch:
			docs = docs[1:]
		}
		return render(routeComment(o), docs...)
	}
	docs := append(namespaceObject(o.Common, true), accountObject(o.Common, "route"), files)
	pod := newPod(o.Common, "route", container{}, selector, tolerations)
	pod.Metadata.Annotations = changed
	pod.Spec.DNSPolicy, pod.Spec.DNSConfig = routeDNS(o, f)
	// The user and the files of the workload are as its image has them.
	pod.Spec.SecurityContext = podSecurityContext{SeccompProfile: profile{"RuntimeDefault"}}
	pod.Spec.InitContainers = []container{routeContainer(o)}
	pod.Spec.Containers = []container{{
		Name: "workload", Image: o.Run, ImagePullPolicy: o.ImagePullPolicy, Args: o.RunArgs,
		SecurityContext: securityContext{Capabilities: capabilities{Drop: []string{"ALL"}}},
	}}
	pod.Spec.Volumes = routeVolumes(o)
	return render(routeComment(o), append(docs, workload{"apps/v1", "Deployment", files.Metadata, workloadSpec{
		Replicas: 1, RevisionHistoryLimit: 3, Selector: labelSelector{selectorLabels(o.Common)}, Template: pod,
		Strategy: &updateStrategy{"RollingUpdate", rollingUpdate{MaxUnavailable: 0, MaxSurge: 1}},
	}})...)
}

// families are those of the ranges. The others are left alone: in many pods the kernel has IPv6 turned off, and would
// refuse the link its address.
type families struct{ v4, v6 bool }

func (f families) of(v4, v6 string) (out []string) {
	if f.v4 {
		out = append(out, v4)
	}
	if f.v6 {
		out = append(out, v6)
	}
	return out
}

// routeConfig has the fields of v1alpha1.RouteConfig that this package sets; a test gives it to the program.
type routeConfig struct {
	APIVersion   string         `yaml:"apiVersion"`
	Kind         string         `yaml:"kind"`
	Clusters     []routeCluster `yaml:"clusters"`
	Addresses    []string       `yaml:"addresses"`
	Resolver     []string       `yaml:"resolver,omitempty"`
	HealthListen string         `yaml:"healthListen"`
	RunDir       string         `yaml:"runDir"`
	Log          configLog      `yaml:"log"`
	DrainTimeout string         `yaml:"drainTimeout"`
}

type routeCluster struct {
	Name        string       `yaml:"name"`
	Hubs        []string     `yaml:"hubs"`
	Certificate string       `yaml:"certificate"`
	Ranges      []routeRange `yaml:"ranges"`
	DNS         *routeNames  `yaml:"dns,omitempty"`
}

type routeRange struct {
	Range string `yaml:"range"`
	As    string `yaml:"as,omitempty"`
}

type routeNames struct {
	Server string `yaml:"server"`
	Zone   string `yaml:"zone"`
}

func routeConfigOf(o RouteOptions, f families) routeConfig {
	one := routeCluster{Name: o.Cluster, Hubs: o.Hubs, Certificate: certificateDir + "/" + o.Cluster + ".pem"}
	for _, r := range o.Ranges {
		one.Ranges = append(one.Ranges, routeRange{Range: r})
	}
	for _, m := range o.Maps {
		there, here, _ := strings.Cut(m, "=")
		one.Ranges = append(one.Ranges, routeRange{there, here})
	}
	c := routeConfig{
		APIVersion: v1alpha1.Version, Kind: v1alpha1.KindRouteConfig, Addresses: f.of(routeLink4, routeLink6),
		HealthListen: ":" + strconv.Itoa(o.HealthPort), RunDir: RunDir, Log: configLog{"json", o.LogLevel},
		DrainTimeout: o.DrainTimeout.String(),
	}
	if o.DNS != "" {
		one.DNS = &routeNames{o.DNS, o.Zone}
		c.Resolver = f.of(routeResolver4, routeResolver6)
	}
	c.Clusters = []routeCluster{one}
	return c
}

// routeDNS puts our resolver before those of the pod: one that is asked first and knows nothing of the zone would say
// that the name does not exist. Kubernetes keeps its own first unless the policy is None.
func routeDNS(o RouteOptions, f families) (policy string, config *dnsConfig) {
	if o.DNS == "" {
		return "", nil
	}
	first := f.of(routeResolver4, routeResolver6)[:1]
	return "None", &dnsConfig{append(first, o.Nameservers...), o.Searches, []dnsOption{{"ndots", podNdots}}}
}

// resolvConfOf is what the program itself reads: its hubs are no names of the cluster, and asking itself for them
// would wait for a link that is not there yet.
func resolvConfOf(o RouteOptions) string {
	out := ""
	for _, n := range o.Nameservers {
		out += "nameserver " + n + "\n"
	}
	if len(o.Searches) > 0 {
		out += "search " + strings.Join(o.Searches, " ") + "\n"
	}
	return out + "options ndots:" + podNdots + "\n"
}

// routeContainer is a sidecar of Kubernetes itself, which starts before the pod's containers and ends after them. They
// start when the routes are in place, which is before any hub has answered: what they do without it is their choice.
func routeContainer(o RouteOptions) container {
	live, ready := probes(o.Common, o.HealthPort, "HTTP")
	started := live // it listens when it routes
	started.PeriodSeconds, started.FailureThreshold = 1, 60
	no, root := false, 0
	out := newPod(o.Common, routeBox, container{
		RestartPolicy: "Always",
		Args:          []string{"route", "--config", configDir + "/" + routeFile},
		Ports:         []containerPort{{"route-health", o.HealthPort, "TCP"}},
		StartupProbe:  started, LivenessProbe: live, ReadinessProbe: ready,
		VolumeMounts: []volumeMount{
			{Name: routeBox + "-run", MountPath: RunDir},
			{Name: routeBox + "-config", MountPath: configDir, ReadOnly: true},
			{Name: routeBox + "-certificate", MountPath: certificateDir, ReadOnly: true},
			{Name: routeBox + "-tun", MountPath: tunDevice},
		},
	}, nil, nil).Spec.Containers[0]
	if o.DNS != "" {
		out.VolumeMounts = append(out.VolumeMounts, volumeMount{Name: routeBox + "-config",
			MountPath: "/etc/" + resolvConf, SubPath: resolvConf, ReadOnly: true})
	}
	// Root, because Kubernetes gives a capability to no other user; of root's rights it has this one.
	out.SecurityContext.RunAsNonRoot, out.SecurityContext.RunAsUser, out.SecurityContext.RunAsGroup = &no, &root, &root
	out.SecurityContext.Capabilities.Add = []string{"NET_ADMIN"}
	out.SecurityContext.SeccompProfile = &profile{"RuntimeDefault"}
	return out
}

func routeVolumes(o RouteOptions) []volume {
	return []volume{
		{Name: routeBox + "-run", EmptyDir: &emptyDir{"16Mi"}},
		{Name: routeBox + "-config", ConfigMap: &configMapVolume{o.Name, 0o444}},
		{Name: routeBox + "-certificate", Secret: &secretVolume{o.Secret, 0o400}},
		// A pod on a node without it does not start, and says so.
		{Name: routeBox + "-tun", HostPath: &hostPath{tunDevice, "CharDevice"}},
	}
}

func routePatch(o RouteOptions, f families, changed map[string]string) document {
	kind, name := routeWorkload(o.Workload)
	add := podAddition{InitContainers: []container{routeContainer(o)}, Volumes: routeVolumes(o)}
	add.DNSPolicy, add.DNSConfig = routeDNS(o, f)
	if o.ImagePullSecret != "" {
		add.ImagePullSecrets = []named{{o.ImagePullSecret}}
	}
	return podPatch{"apps/v1", kind, meta{Name: name, Namespace: o.Namespace},
		podPatchSpec{podPatchTemplate{meta{Annotations: changed}, add}}}
}

// routeWorkload reads [KIND/]NAME; the kind is empty if there is no such.
func routeWorkload(s string) (kind, name string) {
	kind, name, ok := strings.Cut(s, "/")
	if !ok {
		return "Deployment", s
	}
	return map[string]string{"deployment": "Deployment", "deploy": "Deployment", "statefulset": "StatefulSet",
		"sts": "StatefulSet", "daemonset": "DaemonSet", "ds": "DaemonSet"}[strings.ToLower(kind)], name
}

func routeComment(o RouteOptions) []string {
	out := []string{"Made by 'tombolo route manifest'."}
	if o.Kind == RouteSidecar {
		kind, name := routeWorkload(o.Workload)
		// Not a server-side apply: kubectl would make the whole of a workload that was applied without it ours, and the
		// next one would remove what is not in here.
		out = append(out, "With --only objects: kubectl apply -f FILE. With --only patch, which changes nothing else of it:",
			"  kubectl -n "+o.Namespace+" patch "+strings.ToLower(kind)+" "+name+" --patch-file FILE")
	}
	return append(out, "The pods wait for the certificate, whose name is who they are to policies:",
		"  tombolo certificate issue --role route --cluster "+o.Cluster+" --name NAME --out "+o.Cluster+".pem",
		"  kubectl -n "+o.Namespace+" create secret generic "+o.Secret+" --from-file="+o.Cluster+".pem")
}
