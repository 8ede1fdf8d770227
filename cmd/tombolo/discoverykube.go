// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// kubeSource connects the API server of a configuration with a discovery client. Nil means none.
type kubeSource struct {
	source *kube.Source
	server string // kubeconfig, or in-cluster
}

// dialer makes connections; nil: as usual.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// newKubeSource makes the source that a configuration names. Without o.Self it
// only reads. A kubeconfig that is not there yet is waited for.
func newKubeSource(cfg *discoveryclient.Kubernetes, dial dialer, o kube.Options) (*kubeSource, error) {
	if cfg == nil {
		return nil, nil
	}
	load := func() (kube.Access, error) { return kube.Load(cfg.Kubeconfig, os.Getenv) }
	if _, err := load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	o.SkipMembers, o.NodeAnnotations = !cfg.ReadMembers, cfg.ReadAnnotations
	o.SkipObject, o.WriteAnnotations, o.Lease = true, false, cfg.Lease
	if o.Self != nil {
		o.SkipObject, o.WriteAnnotations = !cfg.WriteMember, cfg.WriteAnnotations
	}
	if !o.SkipObject || o.WriteAnnotations || o.OwnNode != nil {
		o.Node = cfg.Node
	}
	source, err := kube.New(kube.NewClientOf(load, dial), o)
	if err != nil {
		return nil, err
	}
	server := cfg.Kubeconfig
	if server == "" {
		server = "in-cluster"
	}
	return &kubeSource{source, server}, nil
}

// sources are what a discovery client reads.
func (k *kubeSource) sources() []discoveryclient.Source {
	if k == nil {
		return nil
	}
	return []discoveryclient.Source{k}
}

// Run reads and writes until ctx ends.
func (k *kubeSource) Run(ctx context.Context, out func([]roster.Said)) error {
	return k.source.Run(ctx, out)
}

// Status is how each part does, under the name that its facts have.
func (k *kubeSource) Status() []discoveryclient.Status {
	var out []discoveryclient.Status
	for _, p := range k.source.Parts() {
		s := discoveryclient.Status{
			Source: p.Name, Kind: discoveryclient.KindKubernetes, URL: k.server, State: discoveryclient.StateConnecting,
			LastContact: p.Contact, Settled: p.Told, Members: p.Members, Junk: p.Bad,
		}
		if p.Writes || p.Own {
			s.Kind = discoveryclient.KindAnnouncement
		}
		if p.Warning != nil {
			s.Warning = fault.From(p.Warning).Explain()
		}
		switch {
		case p.Err != nil:
			why := fault.From(p.Err)
			s.State, s.Code, s.Reason = discoveryclient.StateAway, why.Code, why.Explain()
		case !p.Contact.IsZero():
			s.State = discoveryclient.StateAttending
		}
		out = append(out, s)
	}
	return out
}

// register has the metrics of each part.
func (k *kubeSource) register(reg prometheus.Registerer) {
	if k == nil {
		return
	}
	var reading, all []string
	for _, p := range k.source.Parts() {
		if all = append(all, p.Name); !p.Writes && !p.Own {
			reading = append(reading, p.Name)
		}
	}
	telemetry.NewKube(reg, reading, all, func(part string) telemetry.KubePart {
		parts := k.source.Parts()
		i := slices.IndexFunc(parts, func(p kube.Part) bool { return p.Name == part })
		if i < 0 {
			return telemetry.KubePart{}
		}
		p := parts[i]
		out := telemetry.KubePart{Answers: p.Err == nil && !p.Contact.IsZero(), Objects: p.Objects, Members: p.Members,
			Bad: p.Bad}
		if !p.Contact.IsZero() {
			out.Contact = float64(p.Contact.UnixMilli()) / 1000
		}
		return out
	})
}

// leave takes back what this node wrote, after Run.
func (k *kubeSource) leave(ctx context.Context) error {
	if k == nil {
		return nil
	}
	return k.source.Leave(ctx)
}

// apiServers is the API server of a configuration, if its address stands there: the whole
// machine needs it outside of the mesh. A kubeconfig that comes later counts at the next start.
func apiServers(cfg *discoveryclient.Kubernetes) []topology.Service {
	if cfg == nil {
		return nil
	}
	access, err := kube.Load(cfg.Kubeconfig, os.Getenv)
	if err != nil || access.Server == nil {
		return nil
	}
	a, err := netip.ParseAddr(access.Server.Hostname())
	if err != nil || a.IsLoopback() {
		return nil
	}
	return []topology.Service{{Addr: a.Unmap(), What: "the API server " + access.Server.Host}}
}
