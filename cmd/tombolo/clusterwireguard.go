// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/stream/hub/wireguard"
)

// endpointPoll is how often --watch asks the hub.
const endpointPoll = 2 * time.Second

// wireGuardFlags are those of 'tombolo cluster wireguard'.
type wireGuardFlags struct {
	remote            remoteFlags
	out               outputFlag
	on, off, inherit  bool
	key, endpoint     string
	directory, at     string
	watch             bool
	stdout, complains io.Writer
}

func newClusterWireGuardCommand() *cobra.Command {
	var f wireGuardFlags
	cmd := &cobra.Command{
		Use: "wireguard [CLUSTER]", Short: "Switch a cluster's WireGuard, show it, and write the files of both sides",
		Long: `Show the place of a cluster in the seed's WireGuard network, or change it: --on and
--off are for this cluster alone, --inherit is what the hub's configuration says
(wireguard.enabled). A cluster that is on for the first time gets an address, keys and
a secret from the hub; it keeps them while it is off, until 'tombolo cluster remove'.
With --key it has made its own key, and the hub never sees the private one.

With --directory the files of the cluster's side are written: cluster.secret,
state/wireguard.key (not with --key), members.yaml and mesh.yaml, for 'tombolo mesh --config
mesh.yaml'. Where the cluster reads them in another folder, --at names that.

With --endpoint and --directory, and without a cluster, those of an endpoint are
written: members.yaml, secrets/NAME for each cluster that is on, and, if the hub has
wireguard.vpnServer, forward.yaml. Secrets of clusters that are off are taken away.
--watch keeps them current. A hub that does not answer changes nothing. On the endpoint
itself, --operator may name a file of 'tombolo certificate issue --role endpoint', which
may read this and nothing else.`,
		Example: `  tombolo cluster wireguard c1 --on
  tombolo cluster wireguard c1 --directory c1 --at /etc/tombolo/wireguard
  tombolo cluster wireguard --endpoint e1 --directory /etc/tombolo/wireguard --watch
  tombolo certificate issue --role endpoint --name e1 --out e1.pem`,
		Args: atMostOne("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.stdout, f.complains = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if f.endpoint != "" {
				return f.endpointSide(cmd, args)
			}
			return f.cluster(cmd.Context(), args)
		},
	}
	cmd.ValidArgsFunction = completeCluster(&f.remote)
	fl := cmd.Flags()
	fl.BoolVar(&f.on, "on", false, "this cluster is on")
	fl.BoolVar(&f.off, "off", false, "this cluster is off")
	fl.BoolVar(&f.inherit, "inherit", false, "this cluster is on if wireguard.enabled of the hub is true")
	fl.StringVar(&f.key, "key", "", "`PUBKEY` of a key that the cluster has made itself, as wg pubkey prints it")
	fl.StringVar(&f.endpoint, "endpoint", "", "write the files of the endpoint of this `NAME`")
	fl.StringVar(&f.directory, "directory", "", "write files to `DIR`, each with mode 0600")
	fl.StringVar(&f.at, "at", "", "`PATH` of the folder in which the cluster reads the files; default --directory")
	fl.BoolVar(&f.watch, "watch", false, "keep the files of the endpoint current")
	f.remote.register(cmd)
	f.out.register(cmd)
	return cmd
}

// mode is what the flags say, "" for nothing.
func (f *wireGuardFlags) mode() (mode wireguard.Mode, err error) {
	for _, one := range []struct {
		set  bool
		mode wireguard.Mode
	}{{f.on, wireguard.On}, {f.off, wireguard.Off}, {f.inherit, wireguard.Inherit}} {
		switch {
		case one.set && mode != "":
			return "", usage("only one of --on, --off and --inherit is possible", "tombolo cluster wireguard CLUSTER --on")
		case one.set:
			mode = one.mode
		}
	}
	return mode, nil
}

// cluster shows a cluster, after a change if one is asked for, and writes its files.
func (f *wireGuardFlags) cluster(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usage("a cluster is missing", "tombolo cluster wireguard CLUSTER, or --endpoint NAME --directory DIR")
	}
	if f.watch || f.at != "" && f.directory == "" {
		return usage("--watch is for --endpoint, and --at for --directory", "tombolo cluster wireguard --help")
	}
	mode, err := f.mode()
	if err != nil {
		return err
	}
	if f.key != "" {
		if _, err := member.ParseKey(f.key); err != nil {
			return fault.New(fault.CodeUsage, "--key cannot be read").Because(err).Hint("wg pubkey < KEYFILE prints it")
		}
	}
	client, err := f.remote.client()
	if err != nil {
		return err
	}
	var k admin.WireGuardCluster
	path := "/v1/clusters/" + url.PathEscape(args[0]) + "/wireguard"
	q := admin.WireGuardRequest{Mode: string(mode), PublicKey: f.key}
	if err := client.Call(ctx, http.MethodPost, path, q, &k); err != nil {
		return err
	}
	if f.directory != "" {
		var side wireguard.ClusterSide
		if err := client.Call(ctx, http.MethodPost, path+"/side", nil, &side); err != nil {
			return err
		}
		if err := f.writeCluster(side); err != nil {
			return err
		}
	}
	return f.out.print(f.stdout, k, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, wireGuardLine(k))
		return err
	})
}

func wireGuardLine(k admin.WireGuardCluster) string {
	switch {
	case k.On:
		return fmt.Sprintf("cluster %s: on (mode %s), address %s, key %s%s", k.Cluster, k.Mode, k.Address, k.PublicKey,
			map[bool]string{true: " of its own"}[k.OwnKey])
	case k.Address != "":
		return fmt.Sprintf("cluster %s: off (mode %s), keeps the address %s", k.Cluster, k.Mode, k.Address)
	}
	return fmt.Sprintf("cluster %s: off (mode %s)", k.Cluster, k.Mode)
}

func (f *wireGuardFlags) writeCluster(side wireguard.ClusterSide) error {
	at := f.at
	if at == "" {
		var err error
		if at, err = filepath.Abs(f.directory); err != nil {
			return cannotWrite(f.directory, "--directory", err)
		}
	}
	files, err := side.Files(at)
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := writeChanged(f.directory, file); err != nil {
			return err
		}
	}
	fmt.Fprintf(f.complains, "the files of cluster %s are in %s\n", side.State.Cluster, f.directory)
	return nil
}

// writeChanged writes a file unless it is there already, with this content.
func writeChanged(dir string, file wireguard.File) (changed bool, err error) {
	path := filepath.Join(dir, filepath.FromSlash(file.Name))
	if had, err := os.ReadFile(path); err == nil && bytes.Equal(had, file.Data) {
		return false, nil
	}
	if err := store.Write(path, file.Data); err != nil {
		return false, cannotWrite(path, "--directory", err)
	}
	return true, nil
}

// endpointSide writes the files of an endpoint, once or until a signal.
func (f *wireGuardFlags) endpointSide(cmd *cobra.Command, args []string) error {
	if len(args) > 0 || f.on || f.off || f.inherit || f.key != "" || f.at != "" || f.directory == "" {
		return usage("--endpoint takes --directory and --watch, and no cluster",
			"tombolo cluster wireguard --endpoint NAME --directory DIR")
	}
	client, err := f.remote.client()
	if err != nil {
		return err
	}
	version, err := f.endpointOnce(cmd.Context(), client, "")
	if !f.watch || err != nil && !fault.Has(err, fault.CodeHubAway) {
		return err
	}
	f.remote.patient = patient{} // a hub that is away is told once
	if client, err = f.remote.client(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	told := false
	for run.Wait(ctx, endpointPoll) {
		next, err := f.endpointOnce(ctx, client, version)
		switch {
		case err == nil:
			version, told = next, false
		case !told && ctx.Err() == nil:
			fmt.Fprintf(f.complains, "the files stay as they are: %s\n", fault.From(err).Error())
			told = true
		}
	}
	return nil
}

// endpointOnce asks for the clusters, unless they are those of the version, and writes what differs.
func (f *wireGuardFlags) endpointOnce(ctx context.Context, client *admin.Client, version string) (string, error) {
	var side wireguard.EndpointSide
	path := "/v1/wireguard/endpoints/" + url.PathEscape(f.endpoint) + "?version=" + url.QueryEscape(version)
	if err := client.Call(ctx, http.MethodGet, path, nil, &side); err != nil || side.Version == version {
		return version, err
	}
	files, err := side.Files()
	if err != nil {
		return version, err
	}
	changed := 0
	for _, file := range files {
		is, err := writeChanged(f.directory, file)
		if err != nil {
			return version, err
		}
		if is {
			changed++
		}
	}
	removed, err := removeOthers(f.directory, files)
	if err != nil {
		return version, err
	}
	if changed+removed > 0 {
		fmt.Fprintf(f.complains, "%s: %s, %s written, %s removed\n", f.directory, plural(len(side.Clusters), "cluster"),
			plural(changed, "file"), plural(removed, "file"))
	}
	return side.Version, nil
}

// removeOthers takes away what an earlier list had: secrets of clusters that are not on any more, and the forwards.
func removeOthers(dir string, files []wireguard.File) (removed int, err error) {
	had := []string{wireguard.ForwardFile}
	entries, err := os.ReadDir(filepath.Join(dir, wireguard.SecretsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, cannotWrite(dir, "--directory", err)
	}
	for _, e := range entries {
		if _, err := id.ParseCluster(e.Name()); err == nil { // what has another name is not ours
			had = append(had, wireguard.SecretsDir+"/"+e.Name())
		}
	}
	for _, name := range had {
		if slices.ContainsFunc(files, func(f wireguard.File) bool { return f.Name == name }) {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		switch err := os.Remove(path); {
		case err == nil:
			removed++
		case !errors.Is(err, fs.ErrNotExist):
			return removed, cannotWrite(path, "--directory", err)
		}
	}
	return removed, nil
}
