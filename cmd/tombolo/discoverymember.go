// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

func newMemberCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Show the key of this member, and replace it",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		memberVerb(&cobra.Command{
			Use: "show --config FILE", Short: "Print the id of this member, and which one it succeeds",
			Long: `Print the id of this member, which is a hash of its public key. An old id is
shown as long as a service may not know that its key has ended.`,
			Example: "  tombolo discovery member show --config /etc/tombolo/mesh.yaml",
		}, discoveryclient.Own),
		memberVerb(&cobra.Command{
			Use: "rotate --config FILE", Short: "Give this member a new key, which succeeds the old one",
			Long: `Generate a new key for this member, signed by the old one: others see the
member change its id, and never see it leave. A running 'tombolo discovery announce'
takes it over within seconds, else the next one does. It removes the old key at
each service that has taken the new one, and from the disk when all have, or
after 30 minutes. Until then there is no further rotation.`,
			Example: "  tombolo discovery member rotate --config /etc/tombolo/mesh.yaml",
		}, discoveryclient.Rotate),
	)
	return cmd
}

// memberOf is what is printed of a member's key: ids, never a key.
type memberOf struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Member     string `json:"member"`
	Succeeds   string `json:"succeeds,omitempty"`
}

func memberVerb(cmd *cobra.Command, do func(discoveryclient.Config) (discoveryclient.Rotation, error)) *cobra.Command {
	var out outputFlag
	var file string
	cmd.Args = exactArgs()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return usage("--config is missing", "tombolo discovery member "+cmd.Name()+" --config FILE")
		}
		data, err := readConfig(file)
		if err != nil {
			return err
		}
		cfg, err := discoveryclient.ParseConfig(file, data, meshconf.Check)
		if err != nil {
			return err
		}
		var r discoveryclient.Rotation
		var wait patient
		wait.note(cmd)
		if err := wait.until(cmd.Context(), func() (err error) { r, err = do(cfg); return err }); err != nil {
			return err
		}
		v := memberOf{APIVersion: v1alpha1.Version, Kind: "DiscoveryMember", Member: r.New.String()}
		if !r.Old.IsZero() {
			v.Succeeds = r.Old.String()
		}
		return out.print(cmd.OutOrStdout(), v, func(w io.Writer) error {
			fmt.Fprintln(w, v.Member)
			if v.Succeeds != "" {
				fmt.Fprintf(w, "succeeds %s\n", v.Succeeds)
			}
			return nil
		})
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE` (kind MeshConfig) of the member")
	out.register(cmd)
	return cmd
}
