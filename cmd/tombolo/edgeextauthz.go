// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policyfile"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/edge/extauthz"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
)

type extAuthzFlags struct {
	listen, healthListen, audit, logFormat, logLevel string
	policies, tenants                                []string
	configMaps, kubeconfig                           string
}

func newExtAuthzCommand() *cobra.Command {
	var f extAuthzFlags
	cmd := &cobra.Command{
		Use:   "ext-authz --policies PATH... --tenants PATH... | --config-maps NAMESPACE",
		Short: "Decide for an Envoy that stands in front, by its external authorization",
		Long: `Decide for an Envoy or Istio that stands in front (envoy.service.auth.v3.Authorization,
of HTTP and of network filters): by the server name or by the destination header, and
by the address that Envoy gives as the client's.

Files and folders of --policies and --tenants are read again when they change; a bad
file is refused and its last good content stays. SIGHUP reads all of them again.

With --config-maps it reads what 'tombolo controller' writes for ext_authz from the API
server instead, where a change counts within moments; a mounted ConfigMap takes a minute.

There is no TLS: listen on loopback, on a unix socket, or behind a sidecar.`,
		Example: `  tombolo edge ext-authz --policies /etc/tombolo/policies --tenants /etc/tombolo/tenants
  tombolo edge ext-authz --config-maps istio-ingress --listen 0.0.0.0:9191`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runExtAuthz(cmd.Context(), cmd, f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:9191",
		"`ADDRESS` for Envoy, or unix:PATH in a directory that is this user's alone")
	fl.StringSliceVar(&f.policies, "policies", nil, "files and folders of policies (kind AccessPolicy), `PATH,...`")
	fl.StringSliceVar(&f.tenants, "tenants", nil, "files and folders of tenants (kind EdgeTenant), `PATH,...`")
	fl.StringVar(&f.configMaps, "config-maps", "",
		"`NAMESPACE` in which a controller writes ConfigMaps for ext_authz, instead of files")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "",
		"`FILE` that says how to reach the API server (default the service account of the pod)")
	fl.StringVar(&f.healthListen, "health-listen", "127.0.0.1:9192", "`ADDRESS` for http probes and metrics")
	fl.StringVar(&f.audit, "audit", "", "`FILE` for a record of each decision, or - for standard output")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// extAuthz is what runs.
type extAuthz struct {
	server   *extauthz.Server
	policies *policyfile.Files
	tenants  *tenantfile.Files
	objects  *extauthz.ConfigMaps // nil: the files count
	audit    *audit.Writer
	health   listener.Health
}

func runExtAuthz(ctx context.Context, cmd *cobra.Command, f extAuthzFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	log, err := telemetry.Logger(cmd.ErrOrStderr(), f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	reg := newRegistry()
	var doc conf.Document
	cfg := audit.Configure(v1alpha1.AuditConfig{Path: f.audit}, doc.Add)
	if err := doc.Err(); err != nil {
		return err
	}
	records, err := audit.New(cfg, audit.Options{Log: log, Reg: reg, Stdout: cmd.OutOrStdout()})
	if err != nil {
		return err
	}
	e := extAuthz{audit: records}
	policy, tenants := authz.NewTable(), tenant.NewTable()
	e.server = extauthz.New(extauthz.Options{Policy: policy, Tenants: tenants, Audit: records, Log: log, Reg: reg})
	e.health = listener.Health{Metrics: prometheus.Gatherer(reg), Log: log, Ready: func() *fault.Fault { return nil }}
	if f.configMaps != "" {
		e.follow(f, log, policy, tenants)
	} else if err := e.read(f, log, policy, tenants); err != nil {
		return err
	}
	ln, err := listenFor(ctx, f.listen)
	if err != nil {
		return err
	}
	probes, err := listener.Listen(ctx, "--health-listen", f.healthListen)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	log.Info("external authorization is ready", "listen", ln.Addr().String(), "health", probes.Addr().String())
	reload := func() error { return nil }
	if e.objects == nil {
		reload = func() error { return errors.Join(e.policies.Load(), e.tenants.Load()) }
	}
	return runRole(ctx, &configFile{}, log, reload, func(soft, _ context.Context) error {
		return e.audit.While(soft, func() error { return e.serve(soft, ln, probes) })
	})
}

// check refuses flags that exclude each other.
func (f extAuthzFlags) check() error {
	files := len(f.policies)+len(f.tenants) > 0
	switch {
	case f.configMaps != "" && files:
		return usage("--config-maps and --policies or --tenants exclude each other", "choose files or ConfigMaps")
	case f.configMaps == "" && (len(f.policies) == 0 || len(f.tenants) == 0):
		return usage("--policies and --tenants are needed", "name files or folders of both, or use --config-maps")
	case f.configMaps == "" && f.kubeconfig != "":
		return usage("--kubeconfig is for --config-maps", "leave it out")
	case f.configMaps != "" && strings.ContainsAny(f.configMaps, "/?#% "):
		return usage("--config-maps is not the name of a namespace", "such as istio-ingress")
	}
	return nil
}

// read loads the files, and refuses a policy that cannot be read: what a missing rule denies must not be open.
func (e *extAuthz) read(f extAuthzFlags, log *slog.Logger, policies *authz.Table, tenants *tenant.Table) error {
	e.policies = policyfile.New(policyfile.Options{
		Paths: func() []string { return f.policies }, Some: true, Table: policies, Log: log, Now: time.Now,
		Reloaded: e.server.CountReload,
	})
	e.tenants = tenantfile.New(tenantfile.Options{
		Paths: func() []string { return f.tenants }, Table: tenants, Log: log, Now: time.Now, Reloaded: e.server.CountReload,
	})
	if err := e.policies.Load(); err != nil {
		return err
	}
	if err := e.tenants.Load(); err != nil {
		e.tenants.LogRefused(err, "")
	}
	return nil
}

// follow takes ConfigMaps from the API server. Until they are read everybody is refused, and it is not ready.
func (e *extAuthz) follow(f extAuthzFlags, log *slog.Logger, policies *authz.Table, tenants *tenant.Table) {
	source := "ConfigMaps in " + f.configMaps
	into := tenantfile.NewFeed(tenantfile.FeedOptions{
		Source: source, Book: tenantfile.NewBook(tenants), Log: log, Now: time.Now, Reloaded: e.server.CountReload,
	})
	e.objects = extauthz.NewConfigMaps(extauthz.ConfigMapOptions{
		Client:    kube.NewClientOf(func() (kube.Access, error) { return kube.Load(f.kubeconfig, os.Getenv) }, nil),
		Namespace: f.configMaps, Policy: policies, Tenants: into, Log: log, Reloaded: e.server.CountReload,
	})
	e.health.Ready = func() *fault.Fault {
		select {
		case <-into.Heard():
			return nil
		default:
			return fault.New(fault.CodeKubeAway, "the "+source+" are not read yet").Whyf("%s", into.Status().Away)
		}
	}
}

func listenFor(ctx context.Context, address string) (net.Listener, error) {
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		ln, err := listener.ListenUnix("--listen", path)
		if err != nil {
			return nil, err // no typed nil
		}
		return ln, nil
	}
	return listener.Listen(ctx, "--listen", address)
}

// serve owns both listeners.
func (e extAuthz) serve(ctx context.Context, ln, probes net.Listener) error {
	g := run.NewGroup(ctx)
	if e.objects != nil {
		g.Go("config-maps", e.objects.Run)
	} else {
		g.Go("policies", e.policies.Watch)
		g.Go("tenants", e.tenants.Watch)
	}
	g.Go("probes", func(ctx context.Context) error { return e.health.Serve(ctx, probes) })
	g.Go("ext-authz", func(ctx context.Context) error { return e.server.Serve(ctx, ln) })
	return g.Wait()
}
