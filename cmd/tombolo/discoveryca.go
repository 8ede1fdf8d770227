// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/discovery"
)

// caOf is what is printed of a CA: its pin, never its key.
type caOf struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Dir        string `json:"dir"`
	Pin        string `json:"pin"`
}

func newDiscoveryCACommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Create the CA that several discovery services share",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var out outputFlag
	create := &cobra.Command{
		Use: "create DIR", Short: "Write a new CA to ca.crt and ca.key in a folder, and print its pin",
		Args: exactArgs("DIR"),
		Long: `Write a new CA to ca.crt and ca.key in a folder that has neither, and print its
pin. Services that share their members in etcd need one CA: copy both files into
the state directory of each, ca.key with mode 0600. A single service creates
its own.`,
		Example:     "  tombolo discovery ca create ./ca",
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			pin, err := discovery.CreateCA(args[0])
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), caOf{v1alpha1.Version, "DiscoveryCA", args[0], pin}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, pin)
				return err
			})
		},
	}
	out.register(create)
	cmd.AddCommand(create)
	return cmd
}
