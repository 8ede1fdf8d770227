// SPDX-License-Identifier: Apache-2.0

// Command tombolo-controller is what 'tombolo controller' starts. It is a program of its own, because Kubernetes'
// client library would make every agent and node larger (docs/decisions/0025).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/access"
	"github.com/tombolo-io/tombolo/internal/control/acl"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/links/host"
	"github.com/tombolo-io/tombolo/internal/control/links/joining"
	"github.com/tombolo-io/tombolo/internal/control/links/member"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/link/federation"
)

// version is set by the linker (-X main.version=...).
var version = "dev"

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code, as those of tombolo are.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "link" { // 'tombolo link' hands over an order, and prints the answer itself
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
		defer stop()
		if err := joining.Serve(ctx, stdin, stdout, stderr, federation.Read); err != nil {
			return 1
		}
		return 0
	}
	flags := flag.NewFlagSet("tombolo-controller", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "", "configuration `FILE` (kind ControllerConfig)")
	ask := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *ask {
		fmt.Fprintln(stdout, "tombolo-controller version", version)
		return 0
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	err := serve(ctx, *file, stderr)
	if err == nil {
		return 0
	}
	f := fault.From(err)
	fmt.Fprintf(stderr, "error: %s\n", f.Error())
	if f.Next != "" {
		fmt.Fprintf(stderr, "hint: %s\n", f.Next)
	}
	if f.Code == fault.CodeConfig || f.Code == fault.CodeUsage {
		return 2
	}
	return 1
}

func serve(ctx context.Context, file string, stderr io.Writer) error {
	if file == "" {
		return fault.New(fault.CodeUsage, "--config is missing").
			Hint("write one: tombolo config print --role controller > controller.yaml")
	}
	data, err := private.ReadPublic(file, limit.ConfigFile)
	if err != nil {
		return fault.New(fault.CodeConfig, "the configuration cannot be read").Because(err).Hint("correct --config")
	}
	cfg, err := controlconf.Parse(file, data)
	if err != nil {
		return err
	}
	cfg.Version = version
	log, err := telemetry.Logger(stderr, cfg.Log.Format, cfg.Log.Level)
	if err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: telemetry.BuildInfo, Help: "Always 1; the label names the version.",
	}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	reg.MustRegister(info, collectors.NewBuildInfoCollector())
	m, err := manager.New(ctx, cfg, manager.Options{
		Log: log, Registry: reg, Kinds: kinds(cfg), Features: features(cfg),
	})
	if err != nil {
		return err
	}
	g := run.NewGroup(context.WithoutCancel(ctx))
	g.Do(func(ctx context.Context) {
		_ = run.Every(ctx, limit.LogTold, func() { telemetry.TurnLog(ctx, log, time.Now()) })
	})
	err = m.Run(ctx)
	g.Stop()
	_ = g.Wait() // it ends with its context
	return err
}

// kinds are those that webhooks are asked about.
func kinds(cfg controlconf.Config) []string {
	out := manager.Kinds()
	if cfg.Access != nil && len(cfg.Access.Gateways) > 0 {
		out = append(out, istio.KindEnvoyFilter)
	}
	if cfg.ShootAdmission != nil {
		out = append(out, acl.KindShoot)
	}
	return out
}

// features are those that are on. Our own kinds are always judged: the manifest has their webhooks.
func features(cfg controlconf.Config) []manager.Feature {
	var ranges []string
	if cfg.Access != nil {
		ranges = cfg.Access.AdditionalRanges
	}
	out := []manager.Feature{manager.Reviews(ranges)}
	if s := cfg.ShootAdmission; s != nil {
		out = append(out, acl.Admission(s.MaxRanges))
	}
	if cfg.Access != nil {
		if a := cfg.Access; len(a.Gateways)+len(a.Former) > 0 {
			out = append(out, access.Feature(*a))
			if a.Gardener != nil {
				out = append(out, acl.Feature(*a))
			}
		}
	}
	if l := cfg.Links; l != nil && l.Host {
		out = append(out, host.Feature())
	}
	return append(out, member.Features(cfg.Links)...)
}
