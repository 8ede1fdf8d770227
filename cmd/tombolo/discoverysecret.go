// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

func newSecretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Create a cluster's secret, and show which cluster it stands for",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSecretCreateCommand(), newSecretShowCommand())
	return cmd
}

// clusterOf is what is printed of a secret: the id, never the secret.
type clusterOf struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	File       string `json:"file"`
	Cluster    string `json:"cluster"`
}

func newSecretCreateCommand() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Write a new secret to a file of mode 0600, and print the cluster's id",
		Args: exactArgs("FILE"),
		Long: `Write a new secret to a file of mode 0600 that does not exist yet, and print the
id of its cluster. Anyone with the secret is in the cluster; the id alone lets nobody
in. With - for the file, the secret itself is printed, and nothing else.`,
		Example: `  tombolo discovery secret create /etc/tombolo/cluster.secret
  tombolo discovery secret create - | kubectl create secret generic cluster --from-file=secret=/dev/stdin`,
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, err := seal.NewSecret(rand.Reader)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), secret.Encode())
				return err
			}
			files, err := createFiles("FILE", newFile{args[0], 0o600})
			if err != nil {
				return err
			}
			defer files.discard()
			if err := files.fill([]byte(secret.Encode() + "\n")); err != nil {
				return err
			}
			files.keep()
			return printSecretCluster(cmd, out, args[0], secret)
		},
	}
	out.register(cmd)
	return cmd
}

func newSecretShowCommand() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use: "show FILE", Short: "Print the id of the cluster that a secret stands for, and not the secret",
		Args:        exactArgs("FILE"),
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, err := discoveryclient.ReadSecret(args[0])
			if err != nil {
				return err
			}
			return printSecretCluster(cmd, out, args[0], secret)
		},
	}
	out.register(cmd)
	return cmd
}

func printSecretCluster(cmd *cobra.Command, out outputFlag, file string, secret seal.Secret) error {
	v := clusterOf{v1alpha1.Version, "DiscoverySecret", file, secret.Keys().Cluster().String()}
	return out.print(cmd.OutOrStdout(), v, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, v.Cluster)
		return err
	})
}
