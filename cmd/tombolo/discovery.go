// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/etcd"
)

// discoveryFlags are the few settings for a first try; a flag wins over the file.
type discoveryFlags struct {
	config                                                     configFile
	stateDir, runDir, listen, adminListen, logFormat, logLevel string
}

func newDiscoveryCommand() *cobra.Command {
	var f discoveryFlags
	cmd := &cobra.Command{
		Use:   "discovery",
		Short: "Run a discovery service, where members of clusters find each other",
		Long: `Run a discovery service, where members of clusters find each other. It sees only
sealed bytes. With nothing but a state directory it creates its own CA,
serves Tombolo's nodes and Talos nodes on :8446, and probes and metrics on
http://127.0.0.1:8447.

A SIGTERM drains: members are told and may leave within the drain timeout; a
second one stops at once. SIGHUP, or a change of the file, loads the
configuration again; a bad one is refused and the last good one stays.

The commands below it: secret, announce, members and watch are for the nodes that
find each other by such services; status is for both sides; manifest is for
Kubernetes.`,
		Example: `  tombolo discovery --state-dir /var/lib/tombolo/discovery
  tombolo discovery --config /etc/tombolo/discovery.yaml`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDiscovery(cmd.Context(), cmd, &f) },
	}
	d := discovery.DefaultConfig()
	fl := cmd.Flags()
	fl.StringVar(&f.config.path, "config", "",
		"configuration `FILE` (kind DiscoveryConfig; see 'tombolo config print --role discovery')")
	fl.StringVar(&f.stateDir, "state-dir", d.StateDir, "`DIR` for snapshots of members, and for the CA")
	fl.StringVar(&f.runDir, "run-dir", d.RunDir, "`DIR` for the admin socket")
	fl.StringVar(&f.listen, "listen", d.Listen, "`ADDRESS` for members")
	fl.StringVar(&f.adminListen, "admin-listen", d.AdminListen, "`ADDRESS` for http probes and metrics")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.AddCommand(newDiscoveryStatusCommand(), newDiscoveryManifestCommand(), newMemberCommand(), newDiscoveryCACommand())
	cmd.AddCommand(discoveryMemberCommands()...)
	return cmd
}

// loadDiscovery reads the file, if any, and applies the given flags to it.
func loadDiscovery(cmd *cobra.Command, f *discoveryFlags) (discovery.Config, error) {
	cfg := discovery.DefaultConfig()
	if f.config.path != "" {
		data, err := f.config.load()
		if err != nil {
			return cfg, err
		}
		if cfg, err = discovery.ParseConfig(f.config.path, data); err != nil {
			return cfg, err
		}
	}
	cfg.Version = version
	for name, flag := range map[string]struct {
		into  *string
		value string
	}{
		"state-dir": {&cfg.StateDir, f.stateDir}, "run-dir": {&cfg.RunDir, f.runDir}, "listen": {&cfg.Listen, f.listen},
		"admin-listen": {&cfg.AdminListen, f.adminListen}, "log-format": {&cfg.Log.Format, f.logFormat},
		"log-level": {&cfg.Log.Level, f.logLevel},
	} {
		if f.config.path == "" || cmd.Flags().Changed(name) {
			*flag.into = flag.value
		}
	}
	for _, dir := range []*string{&cfg.StateDir, &cfg.RunDir} {
		full, err := filepath.Abs(*dir)
		if err != nil {
			return cfg, fault.New(fault.CodeUsage, "the directory "+*dir+" cannot be found").Because(err)
		}
		*dir = full
	}
	return cfg, nil
}

func runDiscovery(ctx context.Context, cmd *cobra.Command, f *discoveryFlags) error {
	cfg, err := loadDiscovery(cmd, f)
	if err != nil {
		return err
	}
	log, err := telemetry.Logger(cmd.ErrOrStderr(), cfg.Log.Format, cfg.Log.Level)
	if err != nil {
		return err
	}
	s := discovery.New(cfg, discovery.Options{Log: log, Reg: newRegistry(), Etcd: openEtcd(log)})
	reload := func() error {
		next, err := loadDiscovery(cmd, f)
		if err == nil {
			s.Reload(next)
		}
		s.CountReload(err)
		return err
	}
	return runRole(ctx, &f.config, log, reload, s.Run)
}

func newDiscoveryStatusCommand() *cobra.Command {
	var out outputFlag
	var socket, cluster, of string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the discovery service, or the announcement, of this machine does",
		Long: `Show the state of this machine's discovery service: how many members it has, and
how it stores them. If a 'tombolo discovery announce' runs instead, or with
--of announce, show the state of that: its sources with their state and last error,
until when each knows this node, the cache, and conflicts between members.`,
		Example: `  tombolo discovery status
  tombolo discovery status --cluster t1-... -o json
  tombolo discovery status --of announce`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if of != "" && of != "service" && of != "announce" {
				return usage(fmt.Sprintf("--of %q is neither service nor announce", of), "--of announce")
			}
			service := discovery.AdminSocket(discovery.DefaultConfig().RunDir)
			member := announce.AdminSocket(discoveryclient.DefaultRunDir)
			if of == "" && socket == "" { // who names one means it
				socket = os.Getenv("TOMBOLO_DISCOVERY_SOCKET")
			}
			path, both := statusSocket(of, socket, word(os.Getenv("TOMBOLO_DISCOVERY_SOCKET"), service),
				word(os.Getenv(announceSocket), member), mayExist)
			if both {
				fmt.Fprintln(cmd.ErrOrStderr(), "note: a 'tombolo discovery announce' runs here, too: --of announce shows it")
			}
			return showStatus(cmd, out, path, cluster)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&socket, "admin-socket", "",
		"`PATH` of the admin socket (env TOMBOLO_DISCOVERY_SOCKET for a service, "+announceSocket+" for an announcement; "+
			"default below "+discovery.DefaultConfig().RunDir+")")
	fl.StringVar(&of, "of", "", "service or announce (default that which runs here)")
	fl.StringVar(&cluster, "cluster", "", "of a service: count the cluster with this `ID` as well")
	offer(cmd, "of", "service", "announce")
	out.register(cmd)
	return cmd
}

// showStatus prints the status of the process that serves a socket.
func showStatus(cmd *cobra.Command, out outputFlag, socket, cluster string) error {
	path := "/v1/status"
	if cluster != "" {
		path += "?cluster=" + url.QueryEscape(cluster)
	}
	var raw json.RawMessage
	err := askSocket(cmd.Context(), adminWait, at{socket, patient{cmd.ErrOrStderr()}}, path, &raw)
	if fault.Has(err, fault.CodeHubAway) {
		return noAnswer(err, "neither 'tombolo discovery' nor 'tombolo discovery announce' answers at "+socket).
			Hint("start it, or name its socket with --admin-socket; only its user and root may ask")
	}
	if err != nil {
		return err
	}
	kind, err := kindOfStatus(raw)
	if err != nil {
		return err
	}
	if kind == announce.KindStatus {
		if cluster != "" {
			return usage("--cluster is for a discovery service; an announcement answers at "+socket, "--of service")
		}
		var st announce.Status
		if err := json.Unmarshal(raw, &st); err != nil {
			return fault.New(fault.CodeServiceAway, "the answer at "+socket+" cannot be read").Because(err)
		}
		return out.print(cmd.OutOrStdout(), st, func(w io.Writer) error { return printAnnouncement(w, st, time.Now()) })
	}
	var st admin.DiscoveryStatus
	if err := json.Unmarshal(raw, &st); err != nil {
		return fault.New(fault.CodeServiceAway, "the answer at "+socket+" cannot be read").Because(err)
	}
	return out.print(cmd.OutOrStdout(), st, func(w io.Writer) error { return printDiscovery(w, st, time.Now()) })
}

// stunLine says where nodes learn their address as seen from outside.
func stunLine(s admin.STUN) string {
	line := "STUN: none"
	if len(s.Listen) > 0 {
		line = "STUN: on " + strings.Join(s.Listen, " and ") + " (UDP)"
	}
	if len(s.Without) > 0 {
		line += "; not " + strings.Join(s.Without, "; ")
	}
	return line
}

func printDiscovery(w io.Writer, st admin.DiscoveryStatus, now time.Time) error {
	draining := ""
	if st.Draining {
		draining = ", draining"
	}
	fmt.Fprintf(w, "discovery service %s %s, running for %s%s, on %s, TLS: %s\n", st.Name, st.Version,
		span(now.Sub(st.Since)), draining, st.Listen, st.TLS)
	fmt.Fprintln(w, stunLine(st.STUN))
	if st.CAPin != "" {
		fmt.Fprintf(w, "CA pin %s\n", st.CAPin)
	}
	fmt.Fprintf(w, "%d members in %d clusters, %s of %s; %d watchers over %d of %d connections\n",
		st.Members, st.Clusters, size(st.Bytes), size(st.Limits.Bytes), st.Watchers, st.Connections, st.Limits.Connections)
	if st.Redirect != "" {
		fmt.Fprintf(w, "Talos nodes are sent to %s\n", st.Redirect)
	}
	saved := ""
	if !st.Store.Saved.IsZero() {
		saved = ", last written " + span(now.Sub(st.Store.Saved)) + " ago"
		if st.Store.Kind != "memory" {
			saved = ", last heard of " + span(now.Sub(st.Store.Saved)) + " ago"
		}
	}
	fmt.Fprintf(w, "store: %s%s\n", st.Store.Kind, saved)
	if c := st.Cluster; c != nil {
		fmt.Fprintf(w, "cluster %q (%s): %d members, %d removals that are remembered, %s, %d watchers\n", c.ID, c.Protocol,
			c.Members, c.Removals, size(c.Bytes), c.Watchers)
	}
	if !st.Store.Settled {
		fmt.Fprintln(w, "warning: the service began without its state, and awaits members")
	}
	if st.Store.Degraded != "" {
		fmt.Fprintf(w, "warning: since %s: %s\n", moment(st.Store.Since), st.Store.Degraded)
	}
	return nil
}

// openEtcd opens the store in etcd for a service.
func openEtcd(log *slog.Logger) func(context.Context, discovery.EtcdConfig, *discovery.Board,
	*telemetry.DiscoveryStore) (discovery.Store, error) {
	return func(ctx context.Context, c discovery.EtcdConfig, b *discovery.Board,
		t *telemetry.DiscoveryStore) (discovery.Store, error) {
		s, err := etcd.Open(ctx, etcd.Config{
			Endpoints: c.Endpoints, Prefix: c.Prefix, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
			Username: c.Username, PasswordFile: c.PasswordFile, Log: log, Tell: t, Times: etcd.Times{Settle: c.Settle},
			Await: c.Await,
		}, b)
		if err != nil {
			return nil, err
		}
		return closing{s}, nil
	}
}

// closing lets a service close its store in etcd like any other.
type closing struct{ *etcd.Store }

// Close implements io.Closer.
func (c closing) Close() error {
	c.Store.Close()
	return nil
}
