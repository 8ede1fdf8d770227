// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"encoding/json"
	"fmt"
)

// The types of objects have their JSON's form, and only the fields that are read.

// Metadata is that of every object.
type Metadata struct {
	Name        string `json:"name"`
	Namespace   string `json:"namespace,omitempty"`
	Labels      Labels `json:"labels,omitzero"`
	Annotations Marks  `json:"annotations,omitzero"`
	Deleted     string `json:"deletionTimestamp,omitempty"`
}

// Labels are those that are read.
type Labels struct {
	ManagedBy string `json:"app.kubernetes.io/managed-by,omitempty"`
}

// Marks are the annotations of Nodes that CNIs write or read.
type Marks struct {
	Flannel          string `json:"flannel.alpha.coreos.com/backend-type,omitempty"`
	KubeRouter       string `json:"kube-router.io/pod-cidr,omitempty"`
	KubeRouterRanges string `json:"kube-router.io/pod-cidrs,omitempty"`
}

// Node is a Node.
type Node struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		PodCIDR  string   `json:"podCIDR,omitempty"`
		PodCIDRs []string `json:"podCIDRs,omitempty"`
	} `json:"spec"`
	Status struct {
		Conditions []Condition `json:"conditions,omitempty"`
	} `json:"status"`
}

// Condition is one of a status.
type Condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// Ready reports whether kubelet says that the node works.
func (n Node) Ready() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// ServiceCIDR has ranges of services.
type ServiceCIDR struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		CIDRs []string `json:"cidrs,omitempty"`
	} `json:"spec"`
}

// Pod is a Pod with a program that has flags.
type Pod struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		Containers []struct {
			Command []string `json:"command,omitempty"`
			Args    []string `json:"args,omitempty"`
		} `json:"containers,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status"`
}

// IPPool is one of Calico.
type IPPool struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		CIDR        string   `json:"cidr"`
		Disabled    bool     `json:"disabled,omitempty"`
		AllowedUses []string `json:"allowedUses,omitempty"`
	} `json:"spec"`
}

// BlockAffinity says which node Calico gives the addresses of a block to.
type BlockAffinity struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		Node    string `json:"node"`
		CIDR    string `json:"cidr"`
		State   string `json:"state,omitempty"`
		Deleted Flag   `json:"deleted,omitempty"`
		Type    string `json:"type,omitempty"` // host, which is also what none means, or virtual
	} `json:"spec"`
}

// Flag is a truth that some versions of Calico write as a text.
type Flag bool

// UnmarshalJSON reads true, false, and both as texts.
func (f *Flag) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case `true`, `"true"`:
		*f = true
	case `false`, `"false"`, `""`, `null`:
		*f = false
	default:
		return fmt.Errorf("%.20q is neither true nor false", data)
	}
	return nil
}

// CiliumNode is what Cilium knows about a node.
type CiliumNode struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		IPAM struct {
			PodCIDRs []string `json:"podCIDRs,omitempty"`
			Pools    struct {
				Allocated []struct {
					CIDRs []string `json:"cidrs,omitempty"`
				} `json:"allocated,omitempty"`
			} `json:"pools,omitzero"`
		} `json:"ipam"`
	} `json:"spec"`
}

// CiliumPodIPPool is a pool of Cilium's IPAM with several of them.
type CiliumPodIPPool struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		IPv4 struct {
			CIDRs []string `json:"cidrs,omitempty"`
		} `json:"ipv4,omitzero"`
		IPv6 struct {
			CIDRs []string `json:"cidrs,omitempty"`
		} `json:"ipv6,omitzero"`
	} `json:"spec"`
}

// ConfigMap is the configuration of a CNI.
type ConfigMap struct {
	Metadata Metadata `json:"metadata"`
	Data     struct {
		NetConf string `json:"net-conf.json,omitempty"` // of Flannel

		IPAM       string `json:"ipam,omitempty"` // of Cilium, as the next ones
		Pool4      string `json:"cluster-pool-ipv4-cidr,omitempty"`
		Pool6      string `json:"cluster-pool-ipv6-cidr,omitempty"`
		EnableIPv4 string `json:"enable-ipv4,omitempty"`
		EnableIPv6 string `json:"enable-ipv6,omitempty"`
		Chaining   string `json:"cni-chaining-mode,omitempty"`

		Etcd string `json:"etcd_endpoints,omitempty"` // of Calico: where it keeps its objects
	} `json:"data"`
}

// Place says where an object is, and of which CNI it is.
type Place struct {
	Namespace, Name string
	CNI             CNI
}

const (
	kubeSystem      = "kube-system"
	calicoConfig    = "calico-config"
	ciliumConfig    = "cilium-config"
	kubeRouterCfg   = "kube-router-cfg"
	canalConfig     = "canal-config"
	rke2CanalConfig = "rke2-canal-config"
	flannelConfig   = "kube-flannel-cfg"
)

// ConfigMaps are those that Facts has if they exist and their CNI matters. Of several with one name, the first is used.
func ConfigMaps() []Place {
	return []Place{{"kube-flannel", flannelConfig, Flannel}, {kubeSystem, flannelConfig, Flannel},
		{kubeSystem, canalConfig, Flannel}, {kubeSystem, rke2CanalConfig, Flannel}, {kubeSystem, ciliumConfig, Cilium},
		{"cilium", ciliumConfig, Cilium}, {kubeSystem, calicoConfig, Calico}, {kubeSystem, kubeRouterCfg, KubeRouter}}
}

// Object is one of those that are read.
type Object interface {
	Node | ServiceCIDR | Pod | IPPool | BlockAffinity | CiliumNode | CiliumPodIPPool | ConfigMap
}

// mostObject bounds the JSON of an object: what an API server stores, and some more.
const mostObject = 4 << 20

// Decode reads an object. A field of another type than the expected one is an error.
func Decode[T Object](data []byte) (T, error) {
	var out T
	if len(data) > mostObject {
		return out, fmt.Errorf("it has %d bytes, at most %d are read", len(data), mostObject)
	}
	err := json.Unmarshal(data, &out)
	return out, err
}
