// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/link/invite"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// The bounds of the life of a join line, and how long controllers may take to write what it needs.
const (
	leastLinkLife, mostLinkLife = 10 * time.Minute, 24 * time.Hour
	linkPatience                = 30 * time.Second
)

func newLinkTokenCommand() *cobra.Command {
	var kube kubeFlags
	var secretFile string
	o := invite.TokenOrder{Wait: linkPatience}
	to := outFlag{mode: 0o600}
	cmd := &cobra.Command{
		Use: "token CLUSTER", Short: "Print the line with which a cluster joins, at the host cluster",
		Args: exactArgs("CLUSTER"),
		Long: `Prints one line with which the cluster of that name joins, once: 'tombolo link join LINE' there.
It runs with an administrator's kubeconfig of the host cluster, whose controller has
features.links.host.

The host cluster gets the Cluster if it is not there, an account tombolo-links/CLUSTER with
its token in a Secret, which the member keeps, and an account for this one join. The join
ends that one, and so does another line for the same cluster. Whoever has the line can link a
cluster in that name, and has the secret that the nodes of all linked clusters share: send it
as you would send a password.

As long as the cluster has not joined, another line also voids the member's token, which
whoever had the earlier line may have. With --renew it does so for a cluster that has joined:
what others hold is void then, and the cluster is not heard until it has joined again with the
new line. Packets between clusters pass meanwhile.`,
		Example: `  tombolo link token west --context host
  tombolo link token west --server https://k8s.example.com:6443 --expires 15m --out west.line
  tombolo link token west --proxy-url http://proxy.west.example:3128
  tombolo link token west --renew --out west.line
  tombolo link token west --server https://tombolo-agent.tombolo-system.svc:6443 --tls-server-name kubernetes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Cluster = args[0]
			if o.Expires < leastLinkLife || o.Expires > mostLinkLife {
				return usage(fmt.Sprintf("--expires %s is not between 10m and 24h", o.Expires), "--expires 1h")
			}
			objects, err := manifest.Invitation(o.Cluster)
			if err != nil {
				return err
			}
			o.Objects = string(objects)
			var shared seal.Secret
			if secretFile != "" {
				text, err := private.Read(secretFile, 1<<10)
				if err != nil {
					return err
				}
				if shared, err = seal.ParseSecret(string(text)); err != nil {
					return err
				}
				o.Given = true
			} else if shared, err = seal.NewSecret(rand.Reader); err != nil {
				return err
			}
			o.Secret = shared.Encode()
			answer, err := kube.order(cmd, invite.Order{Token: &o})
			if err != nil {
				return err
			}
			return to.write(cmd, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, answer.Line)
				return err
			})
		},
	}
	kube.register(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.Renew, "renew", false, "replace the member's token, also if the cluster has joined")
	to.register(cmd, outReplaces)
	f.StringVar(&o.Server, "server", "",
		"`URL` of the host's API server as the other cluster reaches it; else the kubeconfig's")
	f.StringVar(&o.Name, "tls-server-name", "",
		"`NAME` in its certificate, where that is not the host of --server; else the kubeconfig's")
	f.DurationVar(&o.Expires, "expires", time.Hour, "how long the line can be used, 10m to 24h")
	f.StringVar(&o.Proxy, "proxy-url", "",
		"`URL` of a proxy (http, https, socks5) through which the other cluster reaches it")
	f.StringVar(&secretFile, "secret-file", "",
		"`FILE` with the secret that the nodes of all linked clusters share; without it one is drawn with the first line")
	return cmd
}
