// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"path"
	"slices"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

// memberOfLinks are the rights everywhere of a controller whose cluster is linked: it reads nodes, members and what
// tells the ranges of pods and services, and writes the objects of all linked clusters for this cluster's nodes.
func memberOfLinks() []roleRule {
	list := []string{"list"}
	var configs []string
	for _, at := range learn.ConfigMaps() {
		if !slices.Contains(configs, at.Name) {
			configs = append(configs, at.Name)
		}
	}
	return []roleRule{
		{[]string{""}, []string{"nodes"}, nil, []string{"list", "watch"}},
		{[]string{"tombolo.dev"}, []string{"members", "nodeconfigs"}, nil, []string{"list", "watch"}},
		{[]string{"tombolo.dev"}, []string{"clusters", "clusternodes"}, nil,
			[]string{"get", "list", "watch", "create", "patch", "delete"}},
		{[]string{"tombolo.dev"}, []string{"clusters/status", "clusternodes/status"}, nil, []string{"patch"}},
		{[]string{"networking.k8s.io"}, []string{"servicecidrs"}, nil, list},
		{[]string{"crd.projectcalico.org", "projectcalico.org"}, []string{"ippools", "blockaffinities"}, nil, list},
		// Disabled pools for the ranges of other clusters.
		{[]string{"crd.projectcalico.org", "projectcalico.org"}, []string{"ippools"}, nil, []string{"create", "delete"}},
		{[]string{"cilium.io"}, []string{"ciliumnodes", "ciliumpodippools"}, nil, list},
		{[]string{""}, []string{"configmaps"}, configs, []string{"get"}},
	}
}

// askServices is the right by which an API server is asked for the ranges of services: by Services that it refuses.
func askServices() roleRule {
	return roleRule{[]string{""}, []string{"services"}, nil, []string{"create"}}
}

// systemRights are those in kube-system: of Gardener's name of the cluster, and of the flags of kube-apiserver.
func systemRights(o ControllerOptions) (out []roleRule) {
	if o.Gardener {
		out = append(out, roleRule{[]string{""}, []string{"configmaps"}, []string{"shoot-info"}, []string{"list", "watch"}})
	}
	if o.Linked {
		out = append(out, roleRule{[]string{""}, []string{"pods"}, nil, []string{"list"}})
	}
	return out
}

// hostCredentials mounts the Secret with the kubeconfig for the host cluster where the configuration expects it.
func (o ControllerOptions) hostCredentials(pod *podTemplate) {
	if o.HostKubeconfig == "" {
		return
	}
	box := &pod.Spec.Containers[0]
	box.VolumeMounts = append(box.VolumeMounts, volumeMount{Name: "host", MountPath: path.Dir(o.HostKubeconfig),
		ReadOnly: true})
	pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: "host", Secret: &secretVolume{o.Name + "-host", secretMode}})
}

// hostPlace checks where the kubeconfig for the host cluster is to be.
func (p *problems) hostPlace(o ControllerOptions) {
	dir := path.Dir(o.HostKubeconfig)
	if o.HostKubeconfig != "" && (!path.IsAbs(o.HostKubeconfig) || dir == "/" || path.Clean(dir) == configDir) {
		p.add("config", "features.links.hostKubeconfig is %q, and must be in a folder of its own, such as "+
			"/etc/tombolo-host/kubeconfig", o.HostKubeconfig)
	}
}
