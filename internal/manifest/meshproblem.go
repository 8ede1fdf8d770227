// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// mostUnready is the most nodes on which an update may stop the mesh at a time.
const mostUnready = 1000

// Suits says what the objects need in a configuration.
func (o MeshOptions) Suits(c v1alpha1.MeshConfig) error {
	var p problems
	health := loopback + ":" + strconv.Itoa(MemberHealth)
	for _, one := range []struct{ field, got, want string }{
		{"node.name", c.Node.Name, ""}, {"node.stateDir", orElse(c.Node.StateDir, StateRoot+"/mesh"), StateRoot + "/mesh"},
		{"node.runDir", orElse(c.Node.RunDir, RunDir), RunDir},
		{"healthListen", orElse(c.HealthListen, health), health},
	} {
		switch {
		case one.got != one.want && one.want == "":
			p.add("config", "%s is %q there, and all nodes have this file: leave it out", one.field, one.got)
		case one.got != one.want:
			p.add("config", "%s is %q there, and must be %q", one.field, one.got, one.want)
		}
	}
	for _, file := range c.Cluster.SecretFiles {
		key, ok := strings.CutPrefix(file, secretDir+"/")
		if !ok || !isSecretKey(key) {
			p.add("config", "cluster.secretFiles has %q, and must have %s/KEY, with a key of the Secret", file, secretDir)
		}
	}
	p.meshSource(c.Sources.Kubernetes)
	p.meshFiles(o, c)
	switch join := c.Mesh.Join; {
	case join == "" && o.Join != "":
		p.add("join", "the file given with --config has no mesh.join: %q", "@"+MeshJoinFile)
	case join != "" && join != "@"+MeshJoinFile:
		p.add("config", "mesh.join must be %q there, and the line is given with --join: it is a secret", "@"+MeshJoinFile)
	case join != "" && o.Join == "":
		p.add("join", "is missing: mesh.join of --config reads it")
	}
	return p.fault("mesh manifest")
}

// meshSource checks how nodes find each other at the API server.
func (p *problems) meshSource(k *v1alpha1.MeshKubernetes) {
	if k == nil {
		return
	}
	if k.Kubeconfig != "" || !k.InCluster {
		p.add("config", "sources.kubernetes needs inCluster: true there, and no kubeconfig: pods have an account")
	}
	if k.Node != "" {
		p.add("config", "sources.kubernetes.node is %q there, and all nodes have this file: leave it out", k.Node)
	}
	for _, list := range []*[]string{k.Read, k.Write} {
		if list != nil && slices.Contains(*list, "annotations") {
			p.add("config", "sources.kubernetes has annotations there, and the pods have no right to those of Nodes")
		}
	}
}

// meshFiles checks that the pods have the files that a configuration names.
func (p *problems) meshFiles(o MeshOptions, c v1alpha1.MeshConfig) {
	files := map[string]string{"sources.file": c.Sources.File, "mesh.proxyFile": c.Mesh.ProxyFile}
	for i, s := range c.Sources.Services {
		files[fmt.Sprintf("sources.services[%d].caFile", i)] = s.CAFile
		files[fmt.Sprintf("sources.services[%d].proxyFile", i)] = s.ProxyFile
	}
	for _, field := range slices.Sorted(maps.Keys(files)) {
		if files[field] != "" {
			p.add("config", "%s is %q there, and the pods have no such file", field, files[field])
		}
	}
	for _, file := range c.Mesh.Policies {
		if path.Dir(file) != MeshPolicies {
			p.add("config", "mesh.policies has %q there, and must have files in %s", file, MeshPolicies)
		}
	}
	if (len(c.Mesh.Policies) > 0) != (o.Policies != "") {
		p.add("policies", "goes with mesh.policies of --config: both are given, or neither")
	}
}

// mesh checks the options that only the mesh has.
func (p *problems) mesh(o MeshOptions) {
	if !o.HostNetwork {
		p.add("host-network", "is needed: the mesh is that of the node")
	}
	if o.StorageClass != "" {
		p.add("storage-class", "means nothing: there is no volume that is claimed")
	}
	if len(o.Name) > 40 {
		p.add("name", "%q has more than 40 characters", o.Name)
	}
	p.optionalName("secret", o.Secret)
	p.secretKeys(o.SecretKeys)
	if o.SecretText != "" && len(o.SecretKeys) > 1 {
		p.add("secret-key", "stands %d times, and one secret is printed", len(o.SecretKeys))
	}
	p.optionalName("policies", o.Policies)
	p.hostPath("state-host-path", o.StateHostPath)
	if o.MaxUnavailable < 1 || o.MaxUnavailable > mostUnready {
		p.add("max-unavailable", "%d is not between 1 and %d", o.MaxUnavailable, mostUnready)
	}
	if o.Config != "" {
		p.meaningless("with --config, which says it", given{"link-cluster", o.LinkCluster != ""},
			given{"pod-ranges", o.PodRanges}, given{"accept", len(o.Accept) > 0}, given{"keep", o.Keep},
			given{"log-level", o.LogLevel != commonDefaults().LogLevel})
		return
	}
	if o.LinkCluster != "" && (!isLabel(o.LinkCluster) || len(o.LinkCluster) > 63) {
		p.add("link-cluster", "%q is no name of a Cluster", o.LinkCluster)
	}
	for _, text := range o.Accept {
		if !isNetwork(text) || !strings.Contains(text, "/") {
			p.add("accept", "%q is no CIDR", text)
		}
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
