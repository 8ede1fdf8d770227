// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// MeshOptions configure the mesh on the nodes of a Kubernetes cluster.
type MeshOptions struct {
	Common

	// Config is the text of a MeshConfig that all nodes have. Without one it is made of the fields below.
	Config string
	// LinkCluster is the name of the Cluster that the nodes belong to, if it is linked with others.
	LinkCluster string
	// PodRanges has each node announce the ranges of its pods, for other nodes of its own cluster. Where clusters are
	// linked, their objects say which node has which pods.
	PodRanges bool
	// Accept are ranges (CIDR) within which those of others have to be, in place of the program's own list.
	Accept []string
	// Keep has routes and rules stay when a pod ends, so that nothing for peers leaves in clear meanwhile.
	Keep bool
	// Policies is the name of a ConfigMap in the namespace with an AccessPolicy, policy.yaml. With Config, whose
	// mesh.policies names files in MeshPolicies then, it is mounted too.
	Policies string
	// Join is a line of 'tombolo token create --node', printed in the Secret NAME-join. With Config, whose mesh.join is
	// @MeshJoinFile then, it is the line too.
	Join string

	// Secret is the name of a Secret in the namespace with the cluster's secrets. Empty: NAME-secret.
	Secret string
	// SecretKeys are its keys, the newest secret first.
	SecretKeys []string
	// SecretText is a cluster's secret, as seal.Secret.Encode gives it, that is printed in the Secret. Empty: it is
	// there.
	SecretText string

	// StateHostPath is the directory of each node with its keys, its certificate and what it knows.
	StateHostPath string
	// MaxUnavailable is on how many nodes an update stops the mesh at a time.
	MaxUnavailable int
}

// MeshDefaults returns the default options.
func MeshDefaults() MeshOptions {
	out := MeshOptions{Common: commonDefaults(), SecretKeys: []string{"secret"}, MaxUnavailable: 1,
		StateHostPath: StateRoot + "/mesh"}
	out.Name, out.HostNetwork, out.Tolerations = "tombolo-mesh", true, []string{"*"}
	out.PriorityClass, out.NodeSelector = "system-node-critical", []string{"kubernetes.io/os=linux"}
	// No limit: what is killed for its memory takes the links of a whole node with it.
	out.MemoryLimit = ""
	return out
}

// MeshJoinFile is where the pods have the join line, MeshPolicies the folder where they have the policies.
const (
	MeshJoinFile = joinDir + "/join"
	MeshPolicies = policiesDir
)

const (
	meshBox = "mesh"
	// settingsDir is where the program looks for the settings of the network if those below /proc are read-only, as in
	// all containers but privileged ones.
	settingsDir = "/host/proc/sys/net"
)

// Mesh renders a DaemonSet that runs the mesh on each node. Its errors never show a secret.
func Mesh(o MeshOptions) ([]byte, error) {
	var p problems
	selector, tolerations := p.common(o.Common)
	p.mesh(o)
	if err := p.fault("mesh manifest"); err != nil {
		return nil, err
	}
	config, fixed, err := meshConfigs(o)
	if err != nil {
		return nil, err
	}
	m := objectMeta(o.Common, meshBox)
	docs := append(namespaceObject(o.Common, true), accountObject(o.Common, meshBox))
	docs = append(docs, meshRights(o, m)...)
	if o.SecretText != "" {
		docs = append(docs, secret{"v1", "Secret", called(m, o.secretName()), "Opaque",
			map[string]string{o.SecretKeys[0]: o.SecretText}})
	}
	if o.Join != "" {
		docs = append(docs, secret{"v1", "Secret", called(m, o.Name+"-join"), "Opaque", map[string]string{"join": o.Join}})
	}
	docs = append(docs, configMap{"v1", "ConfigMap", m, map[string]string{meshFile: config}},
		meshWorkload(o, fixed, selector, tolerations))
	return render(meshComment(o), docs...)
}

// meshConfigs returns the configuration, and what of it a running node does not take over.
func meshConfigs(o MeshOptions) (config, fixed string, err error) {
	if o.Config != "" {
		return o.Config, o.Config, nil
	}
	if config, err = asText(meshNodeConfigOf(o)); err != nil {
		return "", "", err
	}
	o.Accept = nil
	fixed, err = asText(meshNodeConfigOf(o))
	return config, fixed, err
}

func called(m meta, name string) meta {
	m.Name = name
	return m
}

// secretName is that of the Secret with the cluster's secrets.
func (o MeshOptions) secretName() string { return orElse(o.Secret, o.Name+"-secret") }

func meshComment(o MeshOptions) []string {
	out := []string{"Made by 'tombolo mesh manifest'. Apply the kind Member, and the policy that holds each node to its " +
		"own name, first: tombolo discovery manifest | kubectl apply -f -"}
	if o.SecretText != "" || o.Join != "" {
		out = append(out, "It holds secrets: treat it as one.")
	}
	if o.SecretText == "" {
		out = append(out, "The cluster's secret: tombolo discovery secret create - | kubectl -n "+o.Namespace+
			" create secret generic "+o.secretName()+" --from-file="+o.SecretKeys[0]+"=/dev/stdin")
	}
	return out
}

// meshRights are those of a member. The policy of 'tombolo discovery manifest' holds each pod to the objects of its
// node.
func meshRights(o MeshOptions, m meta) []document {
	whole := meta{Name: o.Namespace + "-" + o.Name, Labels: m.Labels}
	return []document{
		clusterRole{rbacGroup + "/v1", "ClusterRole", whole, append(memberRules(false), podRule())},
		clusterRoleBinding{rbacGroup + "/v1", "ClusterRoleBinding", whole, roleRef{rbacGroup, "ClusterRole", whole.Name},
			[]subject{{Kind: "ServiceAccount", Namespace: o.Namespace, Name: o.Name}}},
	}
}

// meshNodeConfigOf is the configuration of all nodes; each knows its own name from its pod.
func meshNodeConfigOf(o MeshOptions) meshConfig {
	c := meshConfig{
		APIVersion: v1alpha1.Version, Kind: v1alpha1.KindMeshConfig,
		Node: meshNode{StateRoot + "/mesh", RunDir}, HealthListen: loopback + ":" + strconv.Itoa(MemberHealth),
		Sources: meshSources{Kubernetes: &meshKubernetes{InCluster: true}}, Log: configLog{"json", o.LogLevel},
	}
	for _, key := range o.SecretKeys {
		c.Cluster.SecretFiles = append(c.Cluster.SecretFiles, secretDir+"/"+key)
	}
	if o.LinkCluster != "" {
		c.Sources.Linked = &meshLinked{o.LinkCluster}
	}
	if o.PodRanges {
		c.Announce = &meshAnnounce{true}
	}
	section := meshSection{Accept: o.Accept, Keep: o.Keep}
	if o.Join != "" {
		section.Join = "@" + MeshJoinFile
	}
	if o.Policies != "" {
		section.Policies = []string{MeshPolicies + "/policy.yaml"}
	}
	if len(section.Accept) > 0 || section.Keep || section.Join != "" || o.Policies != "" {
		c.Mesh = &section
	}
	return c
}

func meshWorkload(o MeshOptions, fixed string, selector map[string]string, tolerations []toleration) document {
	live, ready := probes(o.Common, MemberHealth, "HTTP")
	pod := newPod(o.Common, meshBox, container{
		Args:           []string{"mesh", "--config", configDir + "/" + meshFile},
		Env:            []variable{{nodeNameKey, variableFrom{fieldRef{"spec.nodeName"}}}},
		LivenessProbe:  live,
		ReadinessProbe: ready,
		VolumeMounts: []volumeMount{
			{Name: stateVolume, MountPath: StateRoot + "/mesh"},
			{Name: runVolume, MountPath: RunDir},
			{Name: "config", MountPath: configDir, ReadOnly: true},
			{Name: "secret", MountPath: secretDir, ReadOnly: true},
			{Name: "tun", MountPath: tunDevice},
			{Name: "settings", MountPath: settingsDir},
		},
	}, selector, tolerations)
	box := &pod.Spec.Containers[0]
	no, root := false, 0
	// Root, because Kubernetes gives a capability to no other user.
	box.SecurityContext.RunAsNonRoot, box.SecurityContext.RunAsUser, box.SecurityContext.RunAsGroup = &no, &root, &root
	box.SecurityContext.Capabilities.Add = []string{"NET_ADMIN", "NET_RAW"}
	// Where SELinux is on, no other type may have a directory of the node, or its settings.
	pod.Spec.SecurityContext = podSecurityContext{SeccompProfile: profile{"RuntimeDefault"},
		SELinux: &seLinuxOptions{"s0", "spc_t"}}
	pod.Spec.AutomountToken = true
	pod.Spec.Volumes = []volume{
		{Name: "config", ConfigMap: &configMapVolume{o.Name, 0o444}},
		{Name: "secret", Secret: &secretVolume{o.secretName(), 0o400}},
		{Name: stateVolume, HostPath: &hostPath{o.StateHostPath, "DirectoryOrCreate"}},
		{Name: runVolume, EmptyDir: &emptyDir{"16Mi"}},
		{Name: "tun", HostPath: &hostPath{tunDevice, "CharDevice"}}, // a pod on a node without it does not start, and says so
		{Name: "settings", HostPath: &hostPath{"/proc/sys/net", "Directory"}},
	}
	if o.Policies != "" {
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: "policies", ConfigMap: &configMapVolume{o.Policies, 0o444}})
		box.VolumeMounts = append(box.VolumeMounts, volumeMount{Name: "policies", MountPath: MeshPolicies, ReadOnly: true})
	}
	if o.Join != "" {
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: "join", Secret: &secretVolume{o.Name + "-join", 0o400}})
		box.VolumeMounts = append(box.VolumeMounts, volumeMount{Name: "join", MountPath: joinDir, ReadOnly: true})
	}
	// What a running node does not take over needs new pods.
	sum := sha256.Sum256([]byte(fixed + "\n" + o.Join))
	pod.Metadata.Annotations = map[string]string{"tombolo.dev/mesh-config": hex.EncodeToString(sum[:8])}
	return daemonSet{"apps/v1", "DaemonSet", objectMeta(o.Common, meshBox), daemonSetSpec{
		RevisionHistoryLimit: 3,
		// Two pods on one node would want the same link.
		UpdateStrategy: updateStrategy{"RollingUpdate", rollingUpdate{MaxUnavailable: o.MaxUnavailable, MaxSurge: 0}},
		Selector:       labelSelector{selectorLabels(o.Common)},
		Template:       pod,
	}}
}
