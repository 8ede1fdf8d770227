// SPDX-License-Identifier: Apache-2.0

// Package backend decides what carries dials into a cluster: its agents, or a proxy such as that of a VPN's server,
// from which clusters move one by one. It holds no state.
package backend

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

const (
	// Agents is the backend that every hub has.
	Agents = "agents"
	// Default stands in commands for what the configuration says.
	Default = "default"
)

// Proxy is an HTTP proxy that leads into clusters. In its fields {cluster} stands for the cluster's name.
type Proxy struct {
	Name       string
	Address    string // host:port
	ServerName string // in its certificate; never empty
	CA         string // PEM file
	// Certificate and Key are PEM files that it is shown; both may be empty.
	Certificate, Key string
}

// For is a proxy as it is for one cluster.
func (p Proxy) For(c id.Cluster) Proxy {
	for _, field := range []*string{&p.Address, &p.ServerName, &p.CA, &p.Certificate, &p.Key} {
		*field = c.In(*field)
	}
	return p
}

// single reports whether the proxy leads into one cluster, whichever is asked for.
func (p Proxy) single() bool { return !strings.Contains(p.Address, id.ClusterMark) }

// Table is what is configured. The zero value has only agents.
type Table struct {
	fallback string // of clusters that have no backend of their own
	proxies  []Proxy
}

// Parse validates what a configuration says.
func Parse(raw []v1alpha1.BackendConfig, fallback string, add conf.Report) Table {
	t := Table{fallback: cmp.Or(fallback, Agents)}
	if len(raw) > most {
		add("backends", "%d backends, at most %d are possible", len(raw), most)
		return t
	}
	for i, b := range raw {
		at := fmt.Sprintf("backends[%d]", i)
		p := Proxy{Name: b.Name, Address: b.Proxy, ServerName: b.ServerName, CA: b.CA, Certificate: b.Certificate, Key: b.Key}
		switch _, err := id.ParseCluster(b.Name); {
		case err != nil:
			add(at+".name", "%q is no name: 1 to 63 of a-z, 0-9 and '-' are", b.Name)
		case b.Name == Agents || b.Name == Default:
			add(at+".name", "%q is no name of a backend: commands use it", b.Name)
		case t.find(b.Name) != nil:
			add(at+".name", "%q is the name of another backend", b.Name)
		}
		host := p.check(at, add)
		p.ServerName = cmp.Or(p.ServerName, host)
		t.proxies = append(t.proxies, p)
	}
	switch p := t.find(t.fallback); {
	case t.fallback == Agents:
	case p == nil:
		add("defaultBackend", "%q is no backend: there are %s", t.fallback, strings.Join(t.Names(), ", "))
	case p.single():
		add("defaultBackend", "the proxy of %s has no %s in its address: the dials of all clusters would end in one", p.Name,
			id.ClusterMark)
	}
	return t
}

// check reports what is wrong with a proxy, and gives the host of its address.
func (p Proxy) check(at string, add conf.Report) string {
	sample := p.For(sampleCluster())
	host, port, err := net.SplitHostPort(sample.Address)
	if err != nil || host == "" || !conf.IsPort(port) {
		add(at+".proxy", "%q is no host:port", p.Address)
	}
	if p.CA == "" {
		add(at+".ca", "it is missing: the file with the CAs of the proxy's certificate")
	}
	switch {
	case p.Certificate != "" && p.Key == "":
		add(at+".key", "it is missing: the file with the private key of the certificate")
	case p.Certificate == "" && p.Key != "":
		add(at+".certificate", "it is missing: the file with the certificate of the private key")
	}
	if p.single() {
		for _, s := range []string{p.ServerName, p.CA, p.Certificate, p.Key} {
			if strings.Contains(s, id.ClusterMark) {
				add(at+".proxy", "it has no %s, and another field has: a proxy is of one cluster, or of all", id.ClusterMark)
				break
			}
		}
	}
	name, _, _ := net.SplitHostPort(p.Address)
	return name
}

func sampleCluster() id.Cluster {
	c, err := id.ParseCluster("c1")
	if err != nil {
		panic(err) // it is a constant
	}
	return c
}

func (t Table) find(name string) *Proxy {
	for i := range t.proxies {
		if t.proxies[i].Name == name {
			return &t.proxies[i]
		}
	}
	return nil
}

// Names are those of all backends.
func (t Table) Names() []string {
	out := []string{Agents}
	for _, p := range t.proxies {
		out = append(out, p.Name)
	}
	return out
}

// Default is the backend of clusters that have none of their own.
func (t Table) Default() string { return cmp.Or(t.fallback, Agents) }

// Of is the backend of a cluster with this one of its own; empty: none.
func (t Table) Of(own string) string { return cmp.Or(own, t.fallback, Agents) }

// Proxy is a backend as it is for a cluster. It fails for Agents.
func (t Table) Proxy(name string, c id.Cluster) (Proxy, error) {
	if p := t.find(name); p != nil {
		return p.For(c), nil
	}
	return Proxy{}, t.unknown(name)
}

func (t Table) unknown(name string) *fault.Fault {
	return fault.Newf(fault.CodeBackendUnknown, "there is no backend %q", name).
		Whyf("the hub has %s", strings.Join(t.Names(), ", ")).
		Hint("put it into 'backends' of the hub's configuration, and reload")
}

// Use is what a cluster has of backends.
type Use struct {
	Own   string         // its own choice; empty: none
	By    string         // what carries its dials now
	Open  map[string]int // streams, by backend
	Ready bool           // agents could carry them
}

// Choose judges whether a cluster may have a backend of its own; empty: that of the default. others are the choices of
// all clusters.
func (t Table) Choose(c id.Cluster, name string, others map[string]Use) error {
	p := t.find(name)
	if name == "" || name == Agents {
		return nil
	}
	if p == nil {
		return t.unknown(name)
	}
	if !p.single() {
		return nil
	}
	for _, other := range slices.Sorted(maps.Keys(others)) {
		if others[other].Own == name && other != c.String() {
			return fault.Newf(fault.CodeConfig, "backend %s leads into cluster %s", name, other).
				Whyf("its address has no %s, so that the dials of both would end in one", id.ClusterMark).
				Hint("write %s into its address in the hub's configuration, or move cluster %s away first", id.ClusterMark, other)
		}
	}
	return nil
}

// Replaces judges whether a table may take the place of the one by which all this is used: a backend goes only when
// nobody uses it any more.
func (t Table) Replaces(uses map[string]Use) error {
	var why []string
	single := map[string]string{} // who has a proxy of one cluster
	for _, c := range slices.Sorted(maps.Keys(uses)) {
		u := uses[c]
		p := t.find(u.Own)
		switch gone := u.By != Agents && t.find(u.By) == nil; {
		case u.Own != "" && u.Own != Agents && p == nil:
			why = append(why, fmt.Sprintf("cluster %s has %s", c, u.Own))
		case p != nil && p.single():
			if other := single[u.Own]; other != "" {
				why = append(why, fmt.Sprintf("clusters %s and %s have %s, whose address has no %s", other, c, u.Own,
					id.ClusterMark))
			}
			single[u.Own] = c
		case u.By != "" && gone && t.Of("") == Agents && !u.Ready: // by default, and nothing would take its place
			why = append(why, fmt.Sprintf("cluster %s goes by %s, and no agent of it is connected", c, u.By))
		}
		for _, name := range slices.Sorted(maps.Keys(u.Open)) {
			if n := u.Open[name]; n > 0 && name != u.Own && name != Agents && t.find(name) == nil {
				why = append(why, fmt.Sprintf("cluster %s has %d open streams by %s", c, n, name))
			}
		}
	}
	if len(why) == 0 {
		return nil
	}
	text := strings.Join(why[:min(len(why), told)], "; ")
	if n := len(why) - told; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return fault.New(fault.CodeBackendInUse, "a backend that is in use is not in the configuration").Whyf("%s", text).
		Hint("put it back; move the clusters with: tombolo cluster backend CLUSTER agents; then remove it")
}
