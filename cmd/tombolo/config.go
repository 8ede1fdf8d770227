// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policyfile"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/edge"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/route"
	"github.com/tombolo-io/tombolo/internal/stream/agent"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/vpn"
	"github.com/tombolo-io/tombolo/internal/vpn/forward"
	"github.com/tombolo-io/tombolo/internal/vpn/routes"
)

//go:embed example/hub.yaml
var exampleHub string

//go:embed example/agent.yaml
var exampleAgent string

//go:embed example/discovery.yaml
var exampleDiscovery string

//go:embed example/mesh.yaml
var exampleMesh string

//go:embed example/members.yaml
var exampleMembers string

//go:embed example/policy.yaml
var examplePolicy string

//go:embed example/edge.yaml
var exampleEdge string

//go:embed example/tenant.yaml
var exampleTenant string

//go:embed example/controller.yaml
var exampleController string

//go:embed example/route.yaml
var exampleRoute string

//go:embed example/vpn-server.yaml
var exampleVPNServer string

//go:embed example/vpn-client.yaml
var exampleVPNClient string

//go:embed example/vpn-forward.yaml
var exampleVPNForward string

//go:embed example/vpn-routes.yaml
var exampleVPNRoutes string

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

// configKind is a kind of configuration file.
type configKind struct {
	kind, role string // role of 'config print', which is also said by the kind
	example    string
	check      func(file string, data []byte) (advice []string, err error)
}

// configKinds are all of them, by the order in which people meet them.
func configKinds() []configKind {
	return []configKind{
		{v1alpha1.KindHubConfig, "hub", exampleHub, func(file string, data []byte) (advice []string, err error) {
			cfg, err := hub.ParseConfig(file, data)
			if err == nil {
				advice = cfg.MemoryAdvice(debug.SetMemoryLimit(-1))
			}
			return advice, err
		}},
		{v1alpha1.KindAgentConfig, "agent", exampleAgent, func(file string, data []byte) ([]string, error) {
			_, err := agent.ParseConfig(file, data)
			return nil, err
		}},
		{v1alpha1.KindDiscoveryConfig, "discovery", exampleDiscovery, func(file string, data []byte) ([]string, error) {
			_, err := discovery.ParseConfig(file, data)
			return nil, err
		}},
		{v1alpha1.KindMeshConfig, "mesh", exampleMesh, func(file string, data []byte) ([]string, error) {
			return nil, discoveryclient.CheckConfig(file, data, meshconf.Check)
		}},
		{v1alpha1.KindMemberList, "members", exampleMembers, func(file string, data []byte) ([]string, error) {
			_, err := roster.ReadList(file, data)
			return nil, err
		}},
		{v1alpha1.KindAccessPolicy, "policy", examplePolicy, func(file string, data []byte) ([]string, error) {
			_, findings := policyfile.Parse(file, data)
			return nil, policyfile.Fault(file, findings)
		}},
		{v1alpha1.KindEdgeConfig, "edge", exampleEdge, func(file string, data []byte) ([]string, error) {
			_, err := edge.ParseConfig(file, data)
			return nil, err
		}},
		{v1alpha1.KindEdgeTenant, "tenant", exampleTenant, func(file string, data []byte) ([]string, error) {
			_, doc := tenant.Read(file, data)
			return nil, doc.Err()
		}},
		{v1alpha1.KindControllerConfig, "controller", exampleController, func(file string, data []byte) ([]string, error) {
			_, err := controlconf.Parse(file, data)
			return nil, err
		}},
		{v1alpha1.KindRouteConfig, "route", exampleRoute, func(file string, data []byte) ([]string, error) {
			_, err := route.ParseConfig(file, data)
			return nil, err
		}},
		{v1alpha1.KindVPNServerConfig, "vpn-server", exampleVPNServer, func(file string, data []byte) ([]string, error) {
			_, err := vpn.ParseServerConfig(file, data)
			return nil, err
		}},
		{v1alpha1.KindVPNClientConfig, "vpn-client", exampleVPNClient, func(file string, data []byte) ([]string, error) {
			_, err := vpn.ParseClientConfig(file, data)
			return nil, err
		}},
		{v1alpha1.KindVPNForwardConfig, "vpn-forward", exampleVPNForward, func(file string, data []byte) ([]string, error) {
			_, err := forward.ParseConfig(file, data)
			return nil, err
		}},
		{v1alpha1.KindVPNRoutesConfig, "vpn-routes", exampleVPNRoutes, func(file string, data []byte) ([]string, error) {
			_, err := routes.ParseConfig(file, data)
			return nil, err
		}},
	}
}

// configNames lists the kinds, or the roles, as a sentence does.
func configNames(of func(configKind) string) (words []string, sentence string) {
	for _, k := range configKinds() {
		words = append(words, of(k))
	}
	last := len(words) - 1
	return words, strings.Join(words[:last], ", ") + " or " + words[last]
}

func newConfigPrintCommand() *cobra.Command {
	var role, kind string
	out := outFlag{mode: 0o644, fresh: true}
	roles, roleList := configNames(func(k configKind) string { return k.role })
	kinds, kindList := configNames(func(k configKind) string { return k.kind })
	cmd := &cobra.Command{
		Use: "print --role " + strings.Join(roles, "|"), Short: "Print a commented example with every field",
		Args: exactArgs(),
		Example: `  tombolo config print --role hub --out hub.yaml
  tombolo config print --kind MemberList`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if role != "" && kind != "" {
				return usage("--role excludes --kind", "give one of them")
			}
			for _, k := range configKinds() {
				if role != "" && k.role == role || kind != "" && k.kind == kind {
					return out.write(cmd, func(w io.Writer) error {
						_, err := io.WriteString(w, k.example)
						return err
					})
				}
			}
			if kind != "" {
				return usage(fmt.Sprintf("there is no kind %q of a configuration%s", kind, conf.Meant(kind, kinds...)),
					"--kind "+kindList)
			}
			return usage(fmt.Sprintf("there is no role %q with a configuration%s", role, conf.Meant(role, roles...)),
				"--role "+roleList)
		},
	}
	cmd.Flags().StringVar(&role, "role", "", roleList)
	cmd.Flags().StringVar(&kind, "kind", "", "the same, by what stands in the file: "+kindList)
	out.register(cmd, "write to `FILE`, which must not exist, instead of stdout")
	offer(cmd, "role", roles...)
	offer(cmd, "kind", kinds...)
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
	_, kinds := configNames(func(k configKind) string { return k.kind })
	known := "kind is " + kinds + "; 'tombolo config print' shows a complete example of each"
	root, named := kindOf(data)
	switch {
	case root == nil:
		// It holds no mapping at all, and this says what it holds.
		if err := conf.Decode(file, data, &v1alpha1.TypeMeta{}).Err(); err != nil {
			return "", nil, fault.From(err).Hint("%s", known)
		}
		return "", nil, fault.Newf(fault.CodeConfig, "%s:1:1: it is no configuration", file).Hint("%s", known)
	case named == nil:
		return "", nil, fault.Newf(fault.CodeConfig, "%s:%d:%d: kind: is missing", file, root.Line, root.Column).
			Hint("%s", known)
	}
	for _, k := range configKinds() {
		if k.kind == named.Value {
			advice, err := k.check(file, data)
			return k.kind, advice, err
		}
	}
	words, _ := configNames(func(k configKind) string { return k.kind })
	return "", nil, fault.Newf(fault.CodeConfig, "%s:%d:%d: kind: %q is unknown%s", file, named.Line, named.Column,
		named.Value, conf.Meant(named.Value, words...)).Hint("%s", known)
}

// kindOf finds the first kind in the mapping of a file. It looks at the nodes,
// so that other mistakes of the file do not hide which parser shall list them.
func kindOf(data []byte) (root, kind *yaml.Node) {
	var doc yaml.Node
	if len(data) > limit.ConfigFile || yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 ||
		doc.Content[0].Kind != yaml.MappingNode {
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
