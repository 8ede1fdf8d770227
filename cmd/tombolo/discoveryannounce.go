// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

func newAnnounceCommand() *cobra.Command {
	var file configFile
	var leave bool
	cmd := &cobra.Command{
		Use: "announce --config FILE", Short: "Run a member: announce this node, and keep what is known of the others",
		Args: exactArgs(),
		Long: `Announce this node to the discovery services and the Kubernetes API of the
configuration until SIGTERM, and keep the cache of the others. Others know the node
until its lease ends, so a restart is not a farewell; with --leave a SIGTERM is one.`,
		Example: "  tombolo discovery announce --config /etc/tombolo/mesh.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file.path == "" {
				return usage("--config is missing", "tombolo discovery announce --config FILE; see 'tombolo config print "+
					"--role mesh'")
			}
			return runAnnounce(cmd, &file, leave)
		},
	}
	cmd.Flags().StringVar(&file.path, "config", "",
		"configuration `FILE` (kind MeshConfig; see 'tombolo config print --role mesh')")
	cmd.Flags().BoolVar(&leave, "leave", false, "say farewell at the end: the others forget this node at once")
	return cmd
}

func runAnnounce(cmd *cobra.Command, file *configFile, leave bool) error {
	load := func() (discoveryclient.Config, error) {
		data, err := file.load()
		if err != nil {
			return discoveryclient.Config{}, err
		}
		return discoveryclient.ParseConfig(file.path, data, meshconf.Check, withoutPodRanges)
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	log, err := telemetry.Logger(cmd.ErrOrStderr(), cfg.Log.Format, cfg.Log.Level)
	if err != nil {
		return err
	}
	reg := newRegistry()
	var client *discoveryclient.Client
	changed := make(chan struct{}, 1)
	kubernetes, err := newKubeSource(cfg.Kubernetes, nil, kube.Options{Log: log, Changed: changed,
		Self: func() member.Facts { return client.Self() }})
	if err != nil {
		return err
	}
	kubernetes.register(reg)
	client, err = discoveryclient.New(cfg, discoveryclient.Options{Log: log, Reg: reg, Version: version,
		Sources: kubernetes.sources(), Announced: changed})
	if err != nil {
		return err
	}
	reload := func() error {
		next, err := load()
		if err != nil {
			return err
		}
		fixed, err := client.Reload(next)
		if len(fixed) > 0 {
			log.Warn("some settings are taken over at the next start only", "settings", fixed)
		}
		return err
	}
	return runRole(cmd.Context(), file, log, reload, func(soft, hard context.Context) error {
		return announceUntil(soft, hard, client, announcing{cfg.HealthListen, cfg.RunDir, leave, kubernetes, log, reg})
	})
}

// withoutPodRanges refuses what only a node of the mesh does: it judges what Kubernetes says by its own
// networks, and keeps it.
func withoutPodRanges(raw v1alpha1.MeshConfig, add conf.Report) error {
	if raw.Announce.PodRanges {
		add("announce.podRanges", "'tombolo mesh' announces them; here name them in announce.ranges")
	}
	return nil
}

type announcing struct {
	listen string
	runDir string
	leave  bool
	kube   *kubeSource // nil: there is none
	log    *slog.Logger
	reg    *prometheus.Registry
}

// farewellTimeout bounds the farewell to all services.
const farewellTimeout = 5 * time.Second

func announceUntil(soft, hard context.Context, member *discoveryclient.Client, a announcing) error {
	ln, err := listener.Listen(soft, "healthListen", a.listen)
	if err != nil {
		return err
	}
	socket, err := listener.ListenUnix("node.runDir", announce.AdminSocket(a.runDir))
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	g := run.NewGroup(context.WithoutCancel(soft))
	announce.New(member, version).Serve(g, socket, a.log)
	g.Go("health", func(ctx context.Context) error { return healthOf(member, a).Serve(ctx, ln) })
	g.Go("discovery", member.Run)
	for _, c := range member.Clusters() {
		a.log.Info("announcing this node", telemetry.AttrCluster, c.String(), "adminSocket", announce.AdminSocket(a.runDir))
	}
	leaves := false
	select {
	case <-soft.Done():
		if leaves = a.leave; leaves {
			farewell(hard, a.log, member.Leave)
		}
	case <-g.Context().Done(): // a part failed; Wait says which
	}
	g.Stop()
	err = g.Wait()
	if leaves { // after the end of what would write it again
		farewell(hard, a.log, a.kube.leave)
	}
	return err
}

func farewell(hard context.Context, log *slog.Logger, leave func(context.Context) error) {
	ctx, cancel := context.WithTimeout(hard, farewellTimeout)
	defer cancel()
	if err := leave(ctx); err != nil {
		log.Warn("the farewell did not arrive everywhere", telemetry.AttrCode, fault.From(err).Code,
			telemetry.AttrReason, err)
	}
}

func healthOf(member *discoveryclient.Client, a announcing) listener.Health {
	return listener.Health{Metrics: a.reg, Log: a.log, Ready: func() *fault.Fault {
		if member.Ready() {
			return nil
		}
		return fault.New(fault.CodeServiceAway, "no source of members answers")
	}}
}
