// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/cobra"

func newEdgeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edge",
		Short: "The public front door of many clusters",
		Long:  "What stands at the public front door of many clusters.",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newExtAuthzCommand())
	return cmd
}
