// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/mesh"
)

func newMeshForgetCommand() *cobra.Command {
	var from meshFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "forget NODE", Short: "Open the ranges of a node that is gone for good", Args: exactArgs("NODE"),
		Long: `Open the ranges of a node that is no longer heard of, or whose key is not, and that has
not said farewell. Until then packets for them are lost on this node, so that nothing
leaves in clear; afterwards they take this machine's own routes. Each node decides for itself.

NODE is the name of the node, or its member id; 'tombolo mesh status' lists them.`,
		Example: "  tombolo mesh forget node-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			var done mesh.Forgotten
			if err := from.call(cmd.Context(), http.MethodPost, "/v1/forget?node="+url.QueryEscape(args[0]), &done); err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s of %s: open, by this machine's own routes from now on\n", prefixTexts(done.Ranges),
					done.Node)
				return err
			})
		},
	}
	from.register(cmd)
	out.register(cmd)
	return cmd
}

// printClosed tells whose ranges are closed, and what opens them.
func printClosed(w io.Writer, all []mesh.Closed, now time.Time) {
	for _, c := range all {
		forget := c.Node
		if !plainWord(forget) { // it is to be copied into a shell, and a member says itself how it is called
			forget = c.ID
		}
		fmt.Fprintf(w, "closed: %s of %s, of which, or of whose key, nothing is heard for %s: lost until %s, or 'tombolo "+
			"mesh forget %s'\n",
			prefixTexts(c.Ranges), cmp.Or(c.Node, c.ID), span(now.Sub(c.Since)), moment(c.Until), forget)
	}
}
