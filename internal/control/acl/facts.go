// SPDX-License-Identifier: Apache-2.0

// Package acl writes an AccessPolicy and an EdgeTenant for each of Gardener's Extensions of type acl. Everything else
// follows from these: what they enforce is the business of package access. One replica writes; what was good last is
// what it wrote, so that a list that cannot be read changes nothing, whoever leads.
package acl

import (
	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/gardener"
	"github.com/tombolo-io/tombolo/internal/access/istio"
)

const (
	// LabelNamespace of what is written names the Extension's namespace.
	LabelNamespace = "tombolo.dev/extension-namespace"

	shootInfo = "ConfigMap kube-system/shoot-info"
)

// extension is an Extension of type acl as it is stored.
type extension struct {
	gardener.Extension
	UID, Version string
	Generation   int64
	Finalizers   []string
	Status       status
}

// facts are all objects that lists depend on, and what was written for them.
type facts struct {
	Extensions      []extension
	Clusters        map[string]gardener.Cluster        // by name
	Infrastructures map[string]gardener.Infrastructure // by namespace/name
	Gateways        []gardener.Service                 // load balancers of gateways
	ShootInfo       *gardener.ConfigMap
	Broken          map[string]string // why an object cannot be decoded, by kind and name
	Policies        []objects.AccessPolicy
	Tenants         []objects.EdgeTenant
}

// options are those of the controller's configuration.
type options struct {
	Most       int          // ranges of a user in one list; 0: any number
	Additional istio.Always // the controller lets them in anyway
	Closes     bool         // a cluster whose first list is refused: nobody else guards it
}

// of are the facts for one Extension.
func (f facts) of(e extension, o options) (gardener.Facts, []gardener.Problem) {
	out := gardener.Facts{Extension: e.Extension, ShootInfo: f.ShootInfo}
	ns := e.Metadata.Namespace
	for _, object := range []string{"Extension " + ns + "/" + e.Metadata.Name, "Cluster " + ns} {
		if why := f.Broken[object]; why != "" {
			return out, unreadable(object, why)
		}
	}
	cluster, ok := f.Clusters[ns]
	if !ok {
		return out, []gardener.Problem{{Object: "Cluster " + ns, Cause: gardener.NotFound, Code: codeNotFound,
			What: "it is missing, so that the shoot and its seed are not known",
			Next: "it is looked at again when it is there"}}
	}
	out.Cluster = cluster
	name := ns + "/" + cluster.Spec.Shoot.Metadata.Name
	for _, object := range []string{"Infrastructure " + name, shootInfo} {
		if why := f.Broken[object]; why != "" {
			return out, unreadable(object, why)
		}
	}
	if i, ok := f.Infrastructures[name]; ok {
		out.Infrastructure = &i
	}
	for i := range f.Gateways { // one that sends the seed's clients around is enough: the ranges are the seed's own
		if out.Gateway == nil || f.Gateways[i].Proxied() {
			out.Gateway = &f.Gateways[i]
		}
	}
	out.Additional = o.Additional.Texts()
	return out, nil
}

func unreadable(object, why string) []gardener.Problem {
	return []gardener.Problem{{Object: object, Cause: gardener.WrongType, Code: codeAccessList, What: why}}
}
