// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/mesh"
)

func newMeshForgetCommand() *cobra.Command {
	var from meshFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "forget NODE", Short: "Open the ranges of a node that is gone for good", Args: exactArgs("NODE"),
		Long: `Open the ranges of a node of which, or of whose key, nothing is heard any more, and which has not said
farewell. Until then packets for them are lost on this node, so that nothing leaves in
clear; afterwards they go by this machine's own routes. Each node decides for itself.

NODE is the name of the node, or its member id; 'tombolo mesh status' lists them.`,
		Example: "  tombolo mesh forget node-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			var done mesh.Forgotten
			if err := from.call(cmd.Context(), http.MethodPost, "/v1/forget?node="+url.QueryEscape(args[0]), &done); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s of %s: open, by this machine's own routes from now on\n", prefixTexts(done.Ranges), done.Node)
				return err
			})
		},
	}
	from.register(cmd)
	out.register(cmd)
	return cmd
}
