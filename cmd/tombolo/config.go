// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/agent"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/hub"
)

//go:embed example/hub.yaml
var exampleHub string

//go:embed example/agent.yaml
var exampleAgent string

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print an example configuration, or check a file",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigPrintCommand(), newConfigValidateCommand())
	return cmd
}

func newConfigPrintCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "print --role hub|agent", Short: "Print a commented example with every field", Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch role {
			case "hub":
				fmt.Fprint(cmd.OutOrStdout(), exampleHub)
			case "agent":
				fmt.Fprint(cmd.OutOrStdout(), exampleAgent)
			default:
				return usage(fmt.Sprintf("there is no role %q with a configuration", role), "--role hub or agent")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "hub or agent")
	cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"hub", "agent"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newConfigValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE", Short: "Check a file and list every problem with file:line:column", Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readConfig(args[0])
			if err != nil {
				return err
			}
			kind, err := validateConfig(args[0], data)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: a valid %s\n", args[0], kind)
			return nil
		},
	}
}

// validateConfig checks a file by its kind and gives the kind.
func validateConfig(file string, data []byte) (string, error) {
	var head struct {
		Kind string `yaml:"kind"`
	}
	// A file that is no YAML at all is reported with its place by either parser.
	if err := yaml.Unmarshal(data, &head); err != nil || head.Kind == v1alpha1.KindHubConfig {
		_, err := hub.ParseConfig(file, data)
		return v1alpha1.KindHubConfig, err
	}
	if head.Kind == v1alpha1.KindAgentConfig {
		_, err := agent.ParseConfig(file, data)
		return v1alpha1.KindAgentConfig, err
	}
	return "", fault.Newf(fault.CodeConfig, "%s:1:1: kind: %q is unknown", file, head.Kind).
		Hint("%s and %s are known", v1alpha1.KindHubConfig, v1alpha1.KindAgentConfig)
}

func newVersionCommand() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd, out)
		},
	}
	out.register(cmd)
	return cmd
}

func printVersion(cmd *cobra.Command, out outputFlag) error {
	v := struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Version    string `json:"version"`
		Go         string `json:"go"`
		Platform   string `json:"platform"`
	}{v1alpha1.Version, "Version", version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	return out.print(cmd.OutOrStdout(), v, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "tombolo %s (%s, %s)\n", v.Version, v.Go, v.Platform)
		return err
	})
}
