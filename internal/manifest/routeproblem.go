// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
	"github.com/tombolo-io/tombolo/internal/route/names"
)

// The bounds of Kubernetes for a pod's resolv.conf: three servers, of which ours is one.
const (
	podNameservers = 2
	podSearches    = 32
)

// route checks the options that only routed mode has, and says which families its ranges have.
func (p *problems) route(o RouteOptions) families {
	p.routeKind(o)
	p.label("cluster", o.Cluster, 63)
	if len(o.Hubs) == 0 {
		p.add("hub", "is missing: name the main port of a hub of the cluster, HOST:PORT")
	}
	for _, h := range o.Hubs {
		if _, err := policy.ParseTarget(h); err != nil {
			p.add("hub", "%v", err)
		}
	}
	if o.Secret == "" {
		p.add("certificate-secret", "is missing: name a Secret of the namespace with a file "+
			"of 'tombolo certificate issue --role route'")
	}
	p.optionalName("certificate-secret", o.Secret)
	if o.HealthPort < 1 || o.HealthPort > 65535 {
		p.add("health-port", "%d is no port", o.HealthPort)
	}
	if o.HostNetwork {
		p.add("host-network", "would route for the whole node: run 'tombolo route' there as a service of the system")
	}
	if o.StorageClass != "" {
		p.add("storage-class", "means nothing: there is no volume that is claimed")
	}
	table, f := p.routeRanges(o)
	for _, a := range f.of(routeLink4, routeLink6) {
		p.routed("", a, "the link's own address", table)
	}
	p.routeNames(o, f, table)
	return f
}

// routeKind checks the options that one of the two forms has.
func (p *problems) routeKind(o RouteOptions) {
	p.oneOf("kind", o.Kind, RouteSidecar, RouteDeployment)
	switch o.Kind {
	case RouteDeployment:
		if o.Run == "" {
			p.add("run", "is missing: routes are those of a pod, so a Deployment needs a container that uses them; "+
				"name its image, or use --kind sidecar for a workload that is there")
		} else {
			p.image("run", o.Run)
		}
		if o.Workload != "" {
			p.add("workload", "means nothing without --kind sidecar")
		}
		if o.Only != "" {
			p.add("only", "means nothing without --kind sidecar")
		}
	case RouteSidecar:
		if o.Only != "" {
			p.oneOf("only", o.Only, RouteObjects, RoutePatch)
		}
		kind, name := routeWorkload(o.Workload)
		switch {
		case o.Workload == "":
			p.add("workload", "is missing: name the Deployment that gets the sidecar, or statefulset/NAME or daemonset/NAME")
		case kind == "" || !isSubdomain(name):
			p.add("workload", "%q is not NAME, deployment/NAME, statefulset/NAME or daemonset/NAME", o.Workload)
		}
		if o.Run != "" || len(o.RunArgs) > 0 {
			p.add("run", "means nothing with --kind sidecar: the workload has its containers")
		}
		p.meaningless("with --kind sidecar: it is the workload's own", given{"node-selector", len(o.NodeSelector) > 0},
			given{"toleration", len(o.Tolerations) > 0}, given{"priority-class", o.PriorityClass != ""})
	}
}

// given says whether an option was.
type given struct {
	option string
	is     bool
}

// meaningless refuses options that would be ignored.
func (p *problems) meaningless(why string, options ...given) {
	for _, o := range options {
		if o.is {
			p.add(o.option, "means nothing %s", why)
		}
	}
}

// routeRanges reads --range and --map. The table is empty if they overlap.
func (p *problems) routeRanges(o RouteOptions) (mapping.Table, families) {
	var all []mapping.Range
	var options []string
	var f families
	take := func(option string, r mapping.Range, err error) {
		if err != nil {
			p.add(option, "%v", err)
			return
		}
		all, options = append(all, r), append(options, option)
		if r.Here.Addr().Is4() {
			f.v4 = true
		} else {
			f.v6 = true
		}
	}
	for _, text := range o.Ranges {
		r, err := mapping.Parse(o.Cluster, text, "")
		take("range", r, err)
	}
	for _, text := range o.Maps {
		r, err := mapping.ParseMap(o.Cluster, text)
		take("map", r, err)
	}
	if len(o.Ranges)+len(o.Maps) == 0 {
		p.add("range", "is missing, and so is --map: nothing would be routed to the cluster")
	}
	table, overlaps := mapping.New(all)
	for _, over := range overlaps {
		p.add(options[over.Second], "%s", over.Why)
	}
	return table, f
}

// routed refuses an address that must be reached otherwise; without an option, the range is to blame.
func (p *problems) routed(option, address, what string, table mapping.Table) {
	a, ok := nameserver(address)
	if !ok {
		return
	}
	r, _, in := table.There(a)
	if !in {
		return
	}
	if option == "" {
		option = "range"
		if r.Mapped() {
			option = "map"
		}
	}
	p.add(option, "%s, %s, is in the range %s", address, what, r)
}

// nameserver reads an address without a zone.
func nameserver(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == "" && !a.Is4In6()
}

// routeNames checks what is needed to resolve names.
func (p *problems) routeNames(o RouteOptions, f families, table mapping.Table) {
	if o.DNS == "" {
		p.meaningless("without --dns", given{"zone", o.Zone != ""}, given{"nameserver", len(o.Nameservers) > 0},
			given{"search", len(o.Searches) > 0})
		return
	}
	if _, ok := nameserver(o.DNS); !ok {
		if at, err := netip.ParseAddrPort(o.DNS); err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
			p.add("dns", "%q is not the address of a DNS server, such as 10.96.0.10", o.DNS)
		}
	}
	if o.Zone == "" {
		p.add("zone", "is missing: cluster.local is the pod's own cluster, most often; name another, such as %s.internal, "+
			"or cluster.local itself to have it mean cluster %s", o.Cluster, o.Cluster)
	} else if _, err := names.ParseZone(o.Zone); err != nil {
		p.add("zone", "%v", err)
	}
	if n := len(o.Nameservers); n < 1 || n > podNameservers {
		p.add("nameserver", "there are %d, 1 to %d are needed: the pod's own, which are asked for all other names", n,
			podNameservers)
	}
	for _, n := range o.Nameservers {
		if _, ok := nameserver(n); !ok {
			p.add("nameserver", "%q is not an address", n)
		}
		p.routed("nameserver", n, "which the pod needs outside of the cluster", table)
	}
	for _, a := range f.of(routeResolver4, routeResolver6) {
		p.routed("", a, "the resolver's address", table)
	}
	if len(o.Searches) > podSearches {
		p.add("search", "there are %d, at most %d are allowed", len(o.Searches), podSearches)
	}
	for _, s := range o.Searches {
		if !isSubdomain(s) {
			p.add("search", "%q is not a domain", s)
		}
	}
}
