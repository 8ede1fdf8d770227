// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"math"
	"strings"
)

// loopback is the address of probes in the host's network: kubelet is there too, and
// nobody else can reach the port.
const loopback = "127.0.0.1"

// standardLabels are the labels of every object; the first two select the pods.
func standardLabels(c Common, component string) labels {
	out := selectorLabels(c)
	out["app.kubernetes.io/component"] = component
	out["app.kubernetes.io/part-of"] = "tombolo"
	out["app.kubernetes.io/managed-by"] = "tombolo-manifest"
	return out
}

// selectorLabels must never change: the selector of a Deployment is immutable.
func selectorLabels(c Common) labels {
	return labels{"app.kubernetes.io/name": "tombolo", "app.kubernetes.io/instance": c.Name}
}

// namespaceObject enforces the "restricted" Pod Security Standard for our pods, or
// "privileged" if the options require it. The namespaces that every cluster has are not
// ours to label: there is no object for them.
func namespaceObject(c Common, privileged bool) []document {
	if c.NoNamespace || c.Namespace == "default" || strings.HasPrefix(c.Namespace, "kube-") {
		return nil
	}
	level := "restricted"
	if privileged {
		level = "privileged"
	}
	return []document{namespace{"v1", "Namespace", meta{Name: c.Namespace, Labels: labels{
		"app.kubernetes.io/part-of":          "tombolo",
		"pod-security.kubernetes.io/enforce": level,
	}}}}
}

func accountObject(c Common, component string) document {
	return serviceAccount{"v1", "ServiceAccount", objectMeta(c, component), false}
}

func objectMeta(c Common, component string) meta {
	return meta{Name: c.Name, Namespace: c.Namespace, Labels: standardLabels(c, component)}
}

// newPod is a pod without privileges: no root, no capability, no writable path except its
// volumes, no API token.
func newPod(c Common, component string, box container, selector map[string]string,
	tolerations []toleration) podTemplate {
	box.Name, box.Image, box.ImagePullPolicy = component, c.Image, c.ImagePullPolicy
	box.SecurityContext = securityContext{
		ReadOnlyRootFilesystem: true,
		Capabilities:           capabilities{Drop: []string{"ALL"}},
	}
	box.Resources = resources{
		Requests: map[string]string{"cpu": c.CPURequest, "memory": c.MemoryRequest},
		// No limit on CPU: throttled pings would look like a dead link.
	}
	if c.MemoryLimit != "" {
		box.Resources.Limits = map[string]string{"memory": c.MemoryLimit}
	}
	spec := podSpec{
		ServiceAccountName: c.Name,
		PriorityClassName:  c.PriorityClass,
		GracePeriod:        int(math.Ceil((c.DrainTimeout + graceMargin).Seconds())),
		NodeSelector:       selector,
		Tolerations:        tolerations,
		SecurityContext: podSecurityContext{
			RunAsNonRoot: true, RunAsUser: User, RunAsGroup: User, FSGroup: User,
			FSGroupChangePolicy: "OnRootMismatch",
			SeccompProfile:      profile{"RuntimeDefault"},
		},
		Containers: []container{box},
	}
	if c.HostNetwork {
		spec.HostNetwork, spec.DNSPolicy = true, "ClusterFirstWithHostNet"
	}
	if c.ImagePullSecret != "" {
		spec.ImagePullSecrets = []named{{c.ImagePullSecret}}
	}
	return podTemplate{Metadata: meta{Labels: standardLabels(c, component)}, Spec: spec}
}

// probes are the same for both roles: dead after 30 s, not ready after 6.
func probes(c Common, port int, scheme string) (live, ready probe) {
	get := func(path string) httpGet {
		g := httpGet{Path: path, Port: port, Scheme: scheme}
		if c.HostNetwork {
			g.Host = loopback
		}
		return g
	}
	return probe{get("/livez"), 10, 5, 3}, probe{get("/readyz"), 2, 2, 3}
}

// ports returns the container's ports; none on the host's network, where the scheduler
// would reserve them on the node.
func ports(c Common, list ...containerPort) []containerPort {
	if c.HostNetwork {
		return nil
	}
	return list
}

// spreadOver prefers different nodes and zones for the replicas, without requiring them.
func spreadOver(c Common, replicas int) []spread {
	if replicas < 2 {
		return nil
	}
	on := func(key string) spread {
		return spread{1, key, "ScheduleAnyway", labelSelector{selectorLabels(c)}}
	}
	return []spread{on("kubernetes.io/hostname"), on("topology.kubernetes.io/zone")}
}

func stateClaim(c Common, size string) claim {
	return claim{
		Metadata: meta{Name: stateVolume, Labels: selectorLabels(c)},
		Spec: claimSpec{
			AccessModes:      []string{"ReadWriteOnce"},
			StorageClassName: c.StorageClass,
			Resources:        resources{Requests: map[string]string{"storage": size}},
		},
	}
}
