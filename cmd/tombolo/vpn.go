// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"io"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

func newVPNCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vpn",
		Short: "Run one end of a reversed VPN by OpenVPN",
		Long: `Run one end of a reversed VPN by OpenVPN: the cluster dials out, and who is beside
its control plane reaches its nodes, pods and services by plain routing. It starts the
real program (2.6 or newer), which a stock OpenVPN at the other end takes for one of its
own. For new installations 'tombolo route' is faster, and needs no right in the cluster.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVPNServerCommand(), newVPNClientCommand(), newVPNStatusCommand(), newVPNKeyCommand(),
		newVPNManifestCommand(), newVPNForwardCommand(), newVPNRoutesCommand())
	return cmd
}

func newVPNKeyCommand() *cobra.Command {
	out := outFlag{mode: 0o600, fresh: true}
	cmd := &cobra.Command{
		Use:   "key --out FILE",
		Short: "Make a static key for tlsAuth or tlsCrypt of both ends",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var key [openvpn.StaticKey]byte
			if _, err := rand.Read(key[:]); err != nil {
				return err
			}
			return out.write(cmd, func(w io.Writer) error {
				_, err := w.Write(openvpn.WriteStaticKey(key))
				return err
			})
		},
	}
	out.register(cmd, "write to `FILE`, which must not exist, instead of stdout")
	return cmd
}
