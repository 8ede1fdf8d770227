// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/mesh"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
)

func newMeshNetcheckCommand() *cobra.Command {
	var from meshFlags
	var out outputFlag
	f := meshRunFlags{}
	cmd := &cobra.Command{
		Use: "netcheck", Short: "Find out what the network in front of this node lets through", Args: exactArgs(),
		Long: `Find out, within 5 seconds, which kind of NAT is in front of this node, whether UDP
passes, with which IP versions, whether the router maps ports, how far the hubs are,
and to whom direct paths will be possible.

It asks the node that runs here to check its own socket. If none runs, --config
names the STUN servers and hubs, which are asked from another port.`,
		Example: "  tombolo mesh netcheck\n  tombolo mesh netcheck --config /etc/tombolo/mesh.yaml -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var n mesh.Netcheck
			if f.config.path != "" { // which does without a node
				from.patient = patient{}
			}
			err := from.call(cmd.Context(), http.MethodGet, "/v1/netcheck", &n)
			if fault.Has(err, fault.CodeMeshAway) && f.config.path != "" {
				var cfg loadedMesh
				if cfg, err = f.load(cmd); err == nil {
					n, err = mesh.Check(cmd.Context(), cfg.mesh)
				}
			} else if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) { // none runs
				err = fault.From(err).Hint("name its file with --config, which needs no running node; or start it, or name its " +
					"socket with --admin-socket")
			}
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), n, func(w io.Writer) error {
				_, err := io.WriteString(w, n.Text)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&f.config.path, "config", "", "configuration `FILE` of a node that does not run")
	from.register(cmd)
	out.register(cmd)
	return cmd
}

// removed is what 'tombolo mesh down' has taken away.
type removed struct {
	admin.Meta
	Steps []string `json:"steps"`
}

func newMeshDownCommand() *cobra.Command {
	var out outputFlag
	var file string
	cmd := &cobra.Command{
		Use: "down", Short: "Take away what a mesh that was killed has left in the kernel", Args: exactArgs(),
		Long: `Remove the link, routes, rules and the nftables table of a mesh that no longer runs,
and what is the link's of IPsec, policies and states with their keys, though the link
itself be gone: after kill -9, or after a stop with mesh.keep. Until then they fail
closed: nothing for peers leaves in clear. What it left under earlier names of its
configuration is removed too. What is not ours, or belongs to another mesh, is not
touched.

It refuses while a node runs; a SIGTERM ends that, and removes the same. It finds a node
with the kernel's WireGuard, or with mesh.ipsec.only, only by its state directory: name
its --config.`,
		Example: "  tombolo mesh down\n  tombolo mesh down --config /etc/tombolo/mesh.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, stateDir := meshconf.Default().Options, discoveryclient.DefaultStateDir
			if file != "" {
				cfg, err := (&meshRunFlags{config: configFile{path: file}}).load(cmd)
				if err != nil {
					return err
				}
				options, stateDir = cfg.mesh.Options, cfg.mesh.StateDir
			}
			if err := discoveryclient.Unused(stateDir); err != nil {
				return err
			}
			steps, err := routing.Down(routing.Names(options), stateDir)
			r := removed{Meta: admin.Meta{APIVersion: v1alpha1.Version, Kind: "MeshRemoval"}, Steps: []string{}}
			for _, s := range steps {
				r.Steps = append(r.Steps, s.String())
			}
			told := out.print(cmd.OutOrStdout(), r, func(w io.Writer) error {
				for _, s := range r.Steps {
					fmt.Fprintln(w, s)
				}
				if len(r.Steps) == 0 && err == nil {
					fmt.Fprintln(w, "nothing of a mesh is left")
				}
				return nil
			})
			if err != nil {
				return err
			}
			return told
		},
	}
	cmd.Flags().StringVar(&file, "config", "",
		"configuration `FILE` of the mesh, if it has another link, table or state directory")
	out.register(cmd)
	return cmd
}
