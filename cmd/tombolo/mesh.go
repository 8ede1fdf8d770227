// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/link/nodeconfig"
	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/internal/mesh"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// meshRunFlags are the few settings that a first try needs; a flag wins over the file.
type meshRunFlags struct {
	config                                        configFile
	join, secretFile, pin, node, stateDir, runDir string
	services                                      []string
	leave                                         bool
}

func newMeshCommand() *cobra.Command {
	var f meshRunFlags
	cmd := &cobra.Command{
		Use:   "mesh --config FILE",
		Short: "Run this node of the mesh: one encrypted network of nodes anywhere",
		Long: `Run this node of the mesh. It finds the other members of its cluster by discovery,
and a path to each through NATs and firewalls, and routes their addresses and
ranges over WireGuard. Where UDP is blocked, packets go through the relay of a hub,
which sees only ciphertext. It needs root or CAP_NET_ADMIN, TUN and nftables.

With --join, or mesh.join in the configuration, the node gets a certificate from a
hub once, and uses its relay from then on; the line is that of
'tombolo token create --cluster NAME --node'.

A SIGTERM removes everything from the kernel. SIGHUP, or a change of the file,
loads the configuration again; a bad one is refused and the last good one stays.
It also announces the node: 'tombolo discovery announce' is not needed.`,
		Example: `  tombolo mesh --config /etc/tombolo/mesh.yaml
  tombolo mesh --secret-file cluster.secret --service https://192.0.2.10:8446 --pin PIN --join tombolo://...
  tombolo mesh status`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMesh(cmd, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.config.path, "config", "",
		"configuration `FILE` (kind MeshConfig; see 'tombolo config print --role mesh')")
	fl.StringVar(&f.join, "join", "", "the `LINE` of 'tombolo token create --node', @FILE that holds it, or - for stdin")
	fl.BoolVar(&f.leave, "leave", false, "say farewell at the end: the others forget this node at once")
	fl.StringVar(&f.secretFile, "secret-file", "", "`FILE` with the cluster's secret, instead of --config")
	fl.StringArrayVar(&f.services, "service", nil, "`URL` of a discovery service, with --secret-file; may be repeated")
	fl.StringVar(&f.pin, "pin", "", "the CA `PIN` of these services; without it the CAs of the system count")
	fl.StringVar(&f.node, "node", "", "the `NAME` of this node; default NODE_NAME of the environment, else the host name")
	fl.StringVar(&f.stateDir, "state-dir", "",
		"`DIR` for the node's keys, certificate and cache; default that of the configuration")
	fl.StringVar(&f.runDir, "run-dir", "", "`DIR` for the admin sockets; default that of the configuration")
	cmd.AddCommand(
		newMeshStatusCommand(), newMeshPingCommand(), newMeshNetcheckCommand(), newMeshExplainCommand(),
		newMeshKeysCommand(), newMeshForgetCommand(), newMeshDownCommand(), newMeshManifestCommand(),
	)
	return cmd
}

// loadedMesh is a configuration in its two halves: of the member, and of the mesh.
type loadedMesh struct {
	member discoveryclient.Config
	mesh   mesh.Config
}

// loadMesh reads the file, or what the flags say instead, and lays the flags that were
// given over it.
func (f *meshRunFlags) load(cmd *cobra.Command) (loadedMesh, error) {
	var section meshconf.Config
	more := func(raw v1alpha1.MeshConfig, add conf.Report) (err error) {
		section, err = meshconf.Read(raw, readPrivateText, add)
		return err
	}
	var member discoveryclient.Config
	switch {
	case f.config.path != "" && (f.secretFile != "" || len(f.services) > 0 || f.pin != ""):
		return loadedMesh{}, usage("--config excludes --secret-file, --service and --pin",
			"the file says which cluster and which services are meant")
	case f.secretFile != "" && f.pin != "" && len(f.services) == 0:
		return loadedMesh{}, usage("--pin stands without --service",
			"it is the CA pin of the discovery services: name them with --service URL")
	case f.config.path != "":
		data, err := f.config.load()
		if err != nil {
			return loadedMesh{}, err
		}
		if member, err = discoveryclient.ParseConfig(f.config.path, data, more); err != nil {
			return loadedMesh{}, err
		}
	case f.secretFile != "":
		raw := v1alpha1.MeshConfig{Cluster: v1alpha1.MeshCluster{SecretFiles: []string{f.secretFile}}}
		for _, url := range f.services {
			raw.Sources.Services = append(raw.Sources.Services, v1alpha1.MeshService{URL: url, Pin: f.pin})
		}
		var err error
		if member, err = discoveryclient.Configure(raw, more); err != nil {
			return loadedMesh{}, err
		}
	default:
		return loadedMesh{}, usage("it is not said which cluster is meant",
			"tombolo mesh --config FILE, or --secret-file FILE --service URL; see 'tombolo config print --role mesh'")
	}
	for _, set := range []struct {
		into *string
		by   string
	}{
		{&member.Announce.Node, f.node}, {&member.StateDir, f.stateDir}, {&member.RunDir, f.runDir},
		{&section.Join, f.join},
	} {
		if set.by != "" {
			*set.into = set.by
		}
	}
	out := loadedMesh{member, mesh.Config{
		Config: section, Version: version, StateDir: member.StateDir, RunDir: member.RunDir, ClusterID: member.ClusterID,
		Sourceless: member.Sourceless(),
		Keys:       slices.All(member.Keys()), Announce: member.Announce,
		ReadJoin: func(line string) (string, error) { return readJoin(cmd.InOrStdin(), line, "--join (mesh.join)") },
	}}
	if member.PodRanges {
		out.mesh.PodsOf = member.Kubernetes.Node
	}
	for _, s := range member.Services {
		out.mesh.Services = append(out.mesh.Services, endpoint.Server{Name: s.Name, HostPort: s.Address()})
	}
	out.mesh.Needs = apiServers(member.Kubernetes)
	return out, nil
}

func readPrivateText(file string) (string, error) {
	data, err := private.Read(file, limit.PrivateFile)
	return string(data), err
}

func runMesh(cmd *cobra.Command, f *meshRunFlags) error {
	cfg, err := f.load(cmd)
	if err != nil {
		return err
	}
	log, err := telemetry.Logger(cmd.ErrOrStderr(), cfg.member.Log.Format, cfg.member.Log.Level)
	if err != nil {
		return err
	}
	reg := newRegistry()
	n := meshNode{cfg: cfg, log: log, reg: reg, leave: f.leave}
	if err := n.make(); err != nil {
		return err
	}
	reload := func() error {
		waiting, err := n.reload(func() (loadedMesh, error) { return f.load(cmd) })
		n.mesh.Reloaded(waiting, err)
		if len(waiting) > 0 {
			log.Warn("some settings are taken over at the next start only", "settings", waiting)
		}
		return err
	}
	return runRole(cmd.Context(), &f.config, log, reload, n.until)
}

// meshNode is a member and the node of the mesh that it is.
type meshNode struct {
	cfg        loadedMesh
	log        *slog.Logger
	reg        *prometheus.Registry
	leave      bool
	member     *discoveryclient.Client
	mesh       *mesh.Mesh
	kubernetes *kubeSource
	report     *nodeconfig.Writer // nil: the cluster of the node is not linked
}

func (n *meshNode) make() (err error) {
	changed := make(chan struct{}, 1)
	o := kube.Options{Log: n.log, Changed: changed, Self: func() member.Facts { return n.member.Self() }}
	if n.cfg.mesh.PodsOf != "" {
		o.OwnNode = func(of kube.Node) { n.mesh.OwnNode(of.UID, of.PodCIDRs) }
	}
	dial := markedDial(n.cfg.mesh.Options.Marks.Own)
	n.kubernetes, err = newKubeSource(n.cfg.member.Kubernetes, dial, o)
	if err != nil {
		return err
	}
	n.kubernetes.register(n.reg)
	sources, options := n.kubernetes.sources(), mesh.Options{Log: n.log, Reg: n.reg}
	if linked := newLinked(n.cfg.member, dial, n.log, func() { n.mesh.LinkedChanged() }); linked != nil {
		n.report = newReport(n.cfg.member, dial, n.log, func() *report.Facts { return n.mesh.LinkReport() })
		sources, options.Linked = append(sources, linked, n.report), linked
	}
	n.member, err = discoveryclient.New(n.cfg.member, discoveryclient.Options{
		Log: n.log, Reg: n.reg, Version: version, Sources: sources, Announced: changed,
		Dial: dial, Resolver: socket.Resolver(n.cfg.mesh.Options.Marks.Own),
	})
	if err != nil {
		return err
	}
	if id, ok := n.member.ID(); ok {
		n.cfg.mesh.ID = id.String()
	}
	n.cfg.mesh.Lease = n.member.Lease()
	options.Members, options.Listed, options.Announcer, options.Services = n.member, n.member, n.member, n.member
	n.mesh, err = mesh.New(n.cfg.mesh, options)
	return err
}

// reload takes over what a running node can of the configuration that load gives, and
// names the settings that wait for a restart.
func (n *meshNode) reload(load func() (loadedMesh, error)) (waiting []string, err error) {
	next, err := load()
	if err != nil {
		return nil, err
	}
	next.mesh.Keys = slices.All(n.member.Heir(next.member).Keys())
	fixed, err := n.mesh.Reload(next.mesh)
	if err != nil {
		return nil, err
	}
	if err := n.member.TakeSecrets(next.member); err != nil {
		return nil, err
	}
	return append(n.member.Fixed(next.member), fixed...), nil
}

// markedDial makes connections that do not go through the mesh, whatever peers announce.
// Where the mark is not permitted the mesh does not start: here it is left out.
func markedDial(mark uint32) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := carrier.Dialer()
	d.Resolver = socket.Resolver(mark)
	usual := d.Control
	d.Control = func(network, address string, c syscall.RawConn) error {
		if err := socket.Permitted(socket.Mark(c, mark)); err != nil {
			return err
		}
		return usual(network, address, c)
	}
	return d.DialContext
}

// until runs the node until soft ends.
func (n *meshNode) until(soft, hard context.Context) (err error) {
	if err := n.mesh.Preflight(soft); err != nil {
		return err
	}
	if err := n.mesh.Join(soft); err != nil {
		return err
	}
	ln, err := listener.Listen(soft, "healthListen", n.cfg.member.HealthListen)
	if err != nil {
		return err
	}
	members, err := listener.ListenUnix("node.runDir", announce.AdminSocket(n.cfg.member.RunDir))
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	admin, err := listener.ListenUnix("node.runDir", mesh.AdminSocket(n.cfg.member.RunDir))
	if err != nil {
		return errors.Join(err, ln.Close(), members.Close())
	}
	n.mesh.Introduce()
	outer := run.NewGroup(context.WithoutCancel(soft)) // what is asked, and tells others, until the end
	announce.New(n.member, version).Serve(outer, members, n.log)
	outer.Go("mesh admin socket", func(ctx context.Context) error { return n.mesh.Serve(ctx, admin) })
	outer.Go("health", func(ctx context.Context) error { return n.health().Serve(ctx, ln) })
	outer.Go("discovery", n.member.Run)
	inner := run.NewGroup(outer.Context())
	inner.Go("mesh", n.mesh.Run)
	leaves := false
	select {
	case <-soft.Done():
		if leaves = n.leave; leaves {
			farewell(hard, n.log, n.member.Leave)
		}
	case <-inner.Context().Done(): // it failed, or a part of outer did; Wait says which
	}
	inner.Stop()
	err = inner.Wait()
	outer.Stop()
	err = errors.Join(err, outer.Wait())
	if leaves { // after the end of what would write it again
		farewell(hard, n.log, n.kubernetes.leave)
		if n.report != nil {
			farewell(hard, n.log, n.report.Leave)
		}
	}
	return err
}

func (n *meshNode) health() listener.Health {
	return listener.Health{Metrics: n.reg, Log: n.log, Ready: func() *fault.Fault {
		if !n.member.Ready() {
			return fault.New(fault.CodeServiceAway, "no source of members answers")
		}
		return n.mesh.Ready()
	}}
}
