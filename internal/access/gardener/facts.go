// SPDX-License-Identifier: Apache-2.0

package gardener

import "encoding/json"

// Facts are the objects that an access list depends on, as far as they are read. Each can be decoded from an object of
// the Kubernetes API. A pointer is nil if there is no such object.
type Facts struct {
	Extension      Extension
	Cluster        Cluster         // extensions.gardener.cloud: the seed and the shoot
	Infrastructure *Infrastructure // of the shoot
	Gateway        *Service        // the load balancer of the gateway: istio-ingressgateway
	ShootInfo      *ConfigMap      // kube-system/shoot-info, if the seed is a shoot itself
	Additional     []string        // ranges that the operator always allows
}

// Metadata is that of every object.
type Metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
}

// Extension is an access list.
type Extension struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		Type           string          `json:"type"`
		ProviderConfig json.RawMessage `json:"providerConfig,omitempty"`
	} `json:"spec"`
}

// Cluster has a shoot, and the seed that its control plane is on.
type Cluster struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		Seed  Seed  `json:"seed"`
		Shoot Shoot `json:"shoot"`
	} `json:"spec"`
}

// Seed is a cluster with control planes.
type Seed struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		Networks struct {
			Nodes string `json:"nodes,omitempty"`
			Pods  string `json:"pods,omitempty"`
		} `json:"networks"`
		Ingress *struct {
			Domain string `json:"domain"`
		} `json:"ingress,omitempty"`
	} `json:"spec"`
}

// Shoot is a cluster of a user.
type Shoot struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		SeedName   string `json:"seedName,omitempty"`
		Networking *struct {
			Nodes string `json:"nodes,omitempty"`
		} `json:"networking,omitempty"`
		Provider struct {
			Workers []struct {
				Name string `json:"name"`
			} `json:"workers,omitempty"`
		} `json:"provider"`
	} `json:"spec"`
	Status struct {
		TechnicalID         string    `json:"technicalID,omitempty"`
		SeedName            string    `json:"seedName,omitempty"`
		AdvertisedAddresses []Address `json:"advertisedAddresses,omitempty"`
		LastOperation       *struct {
			Type string `json:"type,omitempty"`
		} `json:"lastOperation,omitempty"`
	} `json:"status"`
}

// Ends reports whether the control plane at this seed is about to go: the shoot is being deleted, or moves to another
// seed. Its Extensions go before its API server does.
func (s Shoot) Ends() bool {
	last := s.Status.LastOperation
	return s.Metadata.DeletionTimestamp != "" || last != nil && last.Type == "Migrate" ||
		s.Status.SeedName != "" && s.Spec.SeedName != "" && s.Status.SeedName != s.Spec.SeedName
}

// Address is one at which a shoot is reached.
type Address struct {
	Name        string `json:"name"`
	URL         string `json:"url"`
	Application string `json:"application,omitempty"`
}

// Workerless reports whether a shoot has no nodes, and so neither networks of nodes nor an Infrastructure.
func (s Shoot) Workerless() bool { return len(s.Spec.Provider.Workers) == 0 }

// Infrastructure is what a shoot's nodes run on.
type Infrastructure struct {
	Metadata Metadata `json:"metadata"`
	Status   struct {
		EgressCIDRs []string `json:"egressCIDRs,omitempty"`
	} `json:"status"`
}

// Service is a load balancer.
type Service struct {
	Metadata Metadata `json:"metadata"`
	Status   struct {
		LoadBalancer struct {
			Ingress []struct {
				IPMode string `json:"ipMode,omitempty"`
			} `json:"ingress,omitempty"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

// Proxied reports whether clients within the seed reach the load balancer itself, and so come back with the seed's
// address for the outside.
func (s *Service) Proxied() bool {
	if s == nil {
		return false
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		if in.IPMode == "Proxy" {
			return true
		}
	}
	return false
}

// ConfigMap has texts.
type ConfigMap struct {
	Metadata Metadata          `json:"metadata"`
	Data     map[string]string `json:"data,omitempty"`
}
