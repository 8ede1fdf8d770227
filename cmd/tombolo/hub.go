// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// hubFlags are the few settings for a first try; a flag wins over the file.
type hubFlags struct {
	config                                                     configFile
	stateDir, runDir, listen, adminListen, logFormat, logLevel string
	advertise                                                  []string
}

func newHubCommand() *cobra.Command {
	var f hubFlags
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "Run a hub, which accepts agents and opens streams through them",
		Long: `Run a hub. With nothing but a state directory it creates its CA, listens for
agents on :8443 and serves probes and metrics on https://127.0.0.1:8444.

A SIGTERM drains: no new streams, live ones may end within the drain timeout; a
second one stops at once. SIGHUP, or a change of the file, loads the
configuration again; a bad one is refused and the last good one stays.`,
		Example: `  tombolo hub --state-dir /var/lib/tombolo/hub --advertise hub.example.com
  tombolo token create --cluster c1      # then run its output on the other side`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return runHub(cmd.Context(), cmd, &f) },
	}
	d := hub.DefaultConfig()
	fl := cmd.Flags()
	fl.StringVar(&f.config.path, "config", "",
		"configuration `FILE` (kind HubConfig; see 'tombolo config print --role hub')")
	fl.StringVar(&f.stateDir, "state-dir", d.StateDir, "`DIR` for the CA, tokens and what must be remembered")
	fl.StringVar(&f.runDir, "run-dir", d.RunDir, "`DIR` for unix sockets")
	fl.StringVar(&f.listen, "listen", d.Listen, "`ADDRESS` for agents, CONNECT clients and remote operators")
	fl.StringArrayVar(&f.advertise, "advertise", nil,
		"`HOST[:PORT]` by which agents and clients reach this hub; may be repeated")
	fl.StringVar(&f.adminListen, "admin-listen", d.AdminListen, "`ADDRESS` for https probes and metrics")
	fl.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.AddCommand(newHubBackupCommand(), newHubRestoreCommand(), newHubManifestCommand())
	return cmd
}

// loadHub reads the file, if any, and applies the given flags to it.
func loadHub(cmd *cobra.Command, f *hubFlags) (hub.Config, error) {
	cfg := hub.DefaultConfig()
	var err error
	if f.runDir, err = filepath.Abs(f.runDir); err != nil {
		return cfg, fault.New(fault.CodeUsage, "--run-dir cannot be read").Because(err)
	}
	if f.config.path != "" {
		data, err := f.config.load()
		if err != nil {
			return cfg, err
		}
		overlay := hub.Overlay{}
		if cmd.Flags().Changed("run-dir") {
			overlay.RunDir = f.runDir
		}
		if cfg, err = hub.ParseConfigWith(f.config.path, data, overlay); err != nil {
			return cfg, err
		}
	}
	if f.config.path == "" || cmd.Flags().Changed("run-dir") {
		cfg.RunDir = f.runDir
	}
	cfg.Version = version
	given := func(name string, into *string, value string) {
		if f.config.path == "" || cmd.Flags().Changed(name) {
			*into = value
		}
	}
	given("state-dir", &cfg.StateDir, f.stateDir)
	given("listen", &cfg.Listen, f.listen)
	given("admin-listen", &cfg.AdminListen, f.adminListen)
	given("log-format", &cfg.Log.Format, f.logFormat)
	given("log-level", &cfg.Log.Level, f.logLevel)
	if len(f.advertise) > 0 {
		cfg.Advertise = nil
		for _, a := range f.advertise {
			full, err := hub.Advertised(a, cfg.Listen)
			if err != nil {
				return cfg, fault.New(fault.CodeUsage, "--advertise cannot be read").Because(err).Hint("write HOST or HOST:PORT")
			}
			cfg.Advertise = append(cfg.Advertise, full)
		}
	}
	return cfg, nil
}

func runHub(ctx context.Context, cmd *cobra.Command, f *hubFlags) error {
	cfg, err := loadHub(cmd, f)
	if err != nil {
		return err
	}
	log, err := telemetry.Logger(cmd.ErrOrStderr(), cfg.Log.Format, cfg.Log.Level)
	if err != nil {
		return err
	}
	reg := newRegistry()
	records, traces, err := observe(cfg.Audit, cfg.OTLP, cmd.OutOrStdout(), otlp.Options{
		Log: log, Reg: reg, Service: "tombolo-hub", Version: cfg.Version, Name: cfg.Name,
	})
	if err != nil {
		return err
	}
	h, err := hub.New(cfg, hub.Options{
		Log: log, Reg: reg, Audit: records, Trace: traces, Memory: debug.SetMemoryLimit,
		Extra: map[string]hub.Frontend{hub.ProtocolKonnectivity: konnectivity.New(log)},
	})
	if err != nil {
		return err
	}
	reload := func() error {
		next, err := loadHub(cmd, f)
		if err == nil {
			err = h.Reload(next)
		}
		h.CountReload(err)
		return err
	}
	return while(ctx, records, traces, func() error { return runRole(ctx, &f.config, log, reload, h.Run) })
}

func newHubBackupCommand() *cobra.Command {
	var to string
	var remote remoteFlags
	cmd := &cobra.Command{
		Use:   "backup --to FILE",
		Short: "Copy the state of the running hub into a file",
		Long: `Copy the state of the running hub, consistently and while it works, into a file of mode 0600.
The file contains the CA's private key: protect it accordingly.`,
		Example: "  tombolo hub backup --to hub-$(date +%F).backup",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return usage("--to is missing", "tombolo hub backup --to FILE")
			}
			client, err := remote.client()
			if err != nil {
				return err
			}
			download := func(w io.Writer) (int64, error) { return client.Download(cmd.Context(), "/v1/backup", w) }
			if to == "-" {
				return backupToStdout(cmd, download)
			}
			n, err := writeNew(to, download)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d bytes written to %s; it holds the CA's key\n", n, to)
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`FILE` to write, which must not exist, or - for stdout")
	remote.register(cmd)
	return cmd
}

// backupToStdout is for a pipe that encrypts or carries the backup elsewhere.
func backupToStdout(cmd *cobra.Command, download func(io.Writer) (int64, error)) error {
	if f := fileOf(cmd.OutOrStdout()); f != nil && term.IsTerminal(int(f.Fd())) {
		return usage("a backup is not written to a terminal: it holds the CA's key",
			"name a file with --to, or lead stdout into one")
	}
	n, err := download(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d bytes written to stdout; they hold the CA's key\n", n)
	return nil
}

// writeNew writes a private file that appears only when it is complete.
func writeNew(path string, fill func(io.Writer) (int64, error)) (int64, error) {
	f, err := beginFile(outFlag{path: path, mode: 0o600, fresh: true}, "--to")
	if err != nil {
		return 0, err
	}
	defer f.discard()
	n, err := fill(f)
	var coded *fault.Fault
	if err != nil && !errors.As(err, &coded) { // it is the file that failed
		err = f.bad(err)
	}
	if err != nil {
		return n, err
	}
	return n, f.commit()
}

func newHubRestoreCommand() *cobra.Command {
	var from, dir string
	var force bool
	cmd := &cobra.Command{
		Use:     "restore --from FILE --state-dir DIR",
		Short:   "Restore the state of a hub from a backup, while no hub runs on it",
		Example: "  tombolo hub restore --from hub.backup --state-dir /var/lib/tombolo/hub",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return usage("--from is missing", "tombolo hub restore --from FILE --state-dir DIR")
			}
			f, err := os.Open(from)
			if err != nil {
				return fault.New(fault.CodeUsage, "the backup cannot be read").Because(err).Hint("correct --from")
			}
			defer f.Close()
			if err := state.Restore(f, dir, force); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "the state in %s is that of %s; start the hub on it\n", dir, from)
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`FILE` made by 'tombolo hub backup'")
	cmd.Flags().StringVar(&dir, "state-dir", hub.DefaultConfig().StateDir, "`DIR` of the hub")
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing state; the old file is kept beside it")
	return cmd
}
