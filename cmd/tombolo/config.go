// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/agent"
	"github.com/tombolo-io/tombolo/internal/conf"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/finder"
	"github.com/tombolo-io/tombolo/internal/hub"
	"github.com/tombolo-io/tombolo/internal/limit"
)

//go:embed example/hub.yaml
var exampleHub string

//go:embed example/agent.yaml
var exampleAgent string

//go:embed example/discovery.yaml
var exampleDiscovery string

//go:embed example/mesh.yaml
var exampleMesh string

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
		Use: "print --role hub|agent|discovery|mesh", Short: "Print a commented example with every field", Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch role {
			case "hub":
				fmt.Fprint(cmd.OutOrStdout(), exampleHub)
			case "agent":
				fmt.Fprint(cmd.OutOrStdout(), exampleAgent)
			case "discovery":
				fmt.Fprint(cmd.OutOrStdout(), exampleDiscovery)
			case "mesh":
				fmt.Fprint(cmd.OutOrStdout(), exampleMesh)
			default:
				return usage(fmt.Sprintf("there is no role %q with a configuration", role), "--role hub, agent, discovery or mesh")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "hub, agent, discovery or mesh")
	cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"hub", "agent", "discovery", "mesh"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newConfigValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE", Short: "Check a file and list every problem with file:line:column", Args: exactArgs("FILE"),
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readConfig(args[0])
			if err != nil {
				return fault.From(err).Hint("name a file that can be read")
			}
			kind, advice, err := validateConfig(args[0], data)
			if err != nil {
				return err
			}
			for _, text := range advice { // of a hub that were started here
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: warning: %s\n", args[0], text)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: a valid %s\n", args[0], kind)
			return nil
		},
	}
}

// validateConfig checks a file by its kind and gives the kind, and what is odd here.
func validateConfig(file string, data []byte) (kind string, advice []string, err error) {
	known := fmt.Sprintf("kind is %s, %s, %s, %s or %s; 'tombolo config print' shows a complete example of the first four",
		v1alpha1.KindHubConfig, v1alpha1.KindAgentConfig, v1alpha1.KindDiscoveryConfig, v1alpha1.KindMeshConfig, v1alpha1.KindAccessPolicy)
	root, named := kindOf(data)
	switch {
	case root == nil:
		// It holds no mapping at all, and this says what it holds.
		if err := conf.Decode(file, data, &v1alpha1.TypeMeta{}).Err(); err != nil {
			return "", nil, fault.From(err).Hint("%s", known)
		}
	case named == nil:
		return "", nil, fault.Newf(fault.CodeConfig, "%s:%d:%d: kind: is missing", file, root.Line, root.Column).Hint("%s", known)
	case named.Value == v1alpha1.KindHubConfig:
		cfg, err := hub.ParseConfig(file, data)
		if err == nil {
			advice = cfg.MemoryAdvice(debug.SetMemoryLimit(-1))
		}
		return named.Value, advice, err
	case named.Value == v1alpha1.KindAgentConfig:
		_, err := agent.ParseConfig(file, data)
		return named.Value, nil, err
	case named.Value == v1alpha1.KindDiscoveryConfig:
		_, err := discovery.ParseConfig(file, data)
		return named.Value, nil, err
	case named.Value == v1alpha1.KindMeshConfig:
		return named.Value, nil, finder.CheckConfig(file, data)
	case named.Value == v1alpha1.KindAccessPolicy:
		_, findings := hub.ParsePolicy(file, data)
		return named.Value, nil, hub.PolicyFault(file, findings)
	}
	return "", nil, fault.Newf(fault.CodeConfig, "%s:%d:%d: kind: %q is unknown", file, named.Line, named.Column, named.Value).Hint("%s", known)
}

// kindOf finds the first kind in the mapping of a file. It looks at the nodes,
// so that other mistakes of the file do not hide which parser shall list them.
func kindOf(data []byte) (root, kind *yaml.Node) {
	var doc yaml.Node
	if len(data) > limit.ConfigFile || yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, nil
	}
	root = doc.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "kind" {
			return root, root.Content[i+1]
		}
	}
	return root, nil
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
