// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/link/kosmos"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

func newLinkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "link", Short: "Link clusters, so that pods and services of one reach those of another", Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLinkTokenCommand(), newLinkJoinCommand(), newLinkUnjoinCommand(), newLinkListCommand(),
		newLinkCheckCommand(), newLinkExplainCommand(), newLinkImportCommand())
	return cmd
}

// linkKinds are the kinds of linked clusters.
func linkKinds() []string {
	return []string{v1alpha1.KindCluster, v1alpha1.KindClusterNode, v1alpha1.KindNodeConfig}
}

func newLinkImportCommand() *cobra.Command {
	out, report := wordFlag{word: "yaml", words: []string{"yaml", "json"}}, outFlag{mode: 0o644}
	var kinds []string
	cmd := &cobra.Command{
		Use: "import FILE|-", Short: "Turn objects of Kosmos into those of linked clusters",
		Args: exactArgs("FILE"),
		Long: `Reads objects of kosmos.io/v1alpha1 (Cluster, ClusterNode, NodeConfig), as YAML or JSON,
from a file or with - from stdin, and prints the objects of tombolo.dev/v1alpha1 in
their place. It changes nothing and asks no API server.

What became of each field is reported on stderr with its place: mapped to a field of
ours; found out again by a controller; without a meaning any more, and why; or not
copied, as no object holds keys or kubeconfigs. Whatever cannot be used is refused: an
unknown field, or an address that is none. Its object is left out, the others are
printed, and the exit code is 2.

Apply the Clusters (--kind Cluster). ClusterNodes and NodeConfigs are written by the
controllers of the clusters; they are printed to be compared.`,
		Example: `  kubectl get clusters.kosmos.io,clusternodes.kosmos.io,nodeconfigs.kosmos.io -o yaml > kosmos.yaml
  tombolo link import kosmos.yaml
  tombolo link import kosmos.yaml --kind Cluster > clusters.yaml
  tombolo link import - -o json --report report.json < kosmos.yaml`,
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, k := range kinds {
				if !slices.Contains(linkKinds(), k) {
					return usage(fmt.Sprintf("there is no kind %q of linked clusters%s", k, conf.Meant(k, linkKinds()...)),
						"--kind Cluster,ClusterNode,NodeConfig")
				}
			}
			file, data, err := readImport(cmd, args[0])
			if err != nil {
				return err
			}
			r, err := kosmos.Read(file, data)
			if err != nil {
				return err
			}
			if len(kinds) > 0 {
				r.Objects = slices.DeleteFunc(r.Objects, func(o kosmos.Object) bool { return !slices.Contains(kinds, o.Kind) })
			}
			if err := printObjects(cmd.OutOrStdout(), out.word, r.Objects); err != nil {
				return err
			}
			answer := imported{hub.Meta("LinkImport"), file, inJSON(r.Findings), r.Summary()}
			if err := answer.text(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if err := answer.write(report); err != nil {
				return err
			}
			if n := r.Count(kosmos.Refused); n > 0 {
				return fault.Newf(fault.CodeConfig, "%s of %s cannot be used, and what they are in is left out", plural(n, "value"),
					file).Hint("correct what the report calls refused, or take the object out of the file")
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "print only these `KINDS`: Cluster, ClusterNode, NodeConfig")
	out.register(cmd, "output", "o", "yaml, or json: one List")
	cmd.Flags().StringVar(&report.path, "report", "", "write the report to `FILE` as JSON too; a file there is replaced")
	offer(cmd, "kind", linkKinds()...)
	return cmd
}

// wordFlag is a flag with one of a few words.
type wordFlag struct {
	word  string
	words []string
}

var _ pflag.Value = (*wordFlag)(nil)

func (f *wordFlag) String() string { return f.word }
func (f *wordFlag) Type() string   { return "string" }

// Set accepts a word.
func (f *wordFlag) Set(s string) error {
	if !slices.Contains(f.words, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(f.words, ", "))
	}
	f.word = s
	return nil
}

func (f *wordFlag) register(cmd *cobra.Command, name, short, what string) {
	cmd.Flags().VarP(f, name, short, what)
	offer(cmd, name, f.words...)
}

// readImport reads a file, or stdin, of at most kosmos.MostBytes.
func readImport(cmd *cobra.Command, path string) (name string, data []byte, err error) {
	if path == "-" {
		name = "stdin"
		data, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), kosmos.MostBytes+1))
	} else {
		name = path
		data, err = private.ReadPublic(path, kosmos.MostBytes)
	}
	if err != nil {
		return "", nil, fault.Newf(fault.CodeConfig, "%s cannot be read", name).Because(err).
			Hint("name a file that can be read, or - for stdin")
	}
	return name, data, nil
}

// printObjects prints documents of YAML, or a List in JSON, as kubectl takes them.
func printObjects(w io.Writer, format string, objects []kosmos.Object) error {
	as := &outputFlag{format}
	if format == "json" {
		return as.print(w, struct {
			APIVersion string          `json:"apiVersion"`
			Kind       string          `json:"kind"`
			Items      []kosmos.Object `json:"items"`
		}{"v1", "List", inJSON(objects)}, nil)
	}
	for i, o := range objects {
		if i > 0 {
			if _, err := io.WriteString(w, "---\n"); err != nil {
				return err
			}
		}
		if err := as.print(w, o, nil); err != nil {
			return err
		}
	}
	return nil
}

// imported is the report of an import.
type imported struct {
	admin.Meta
	File     string           `json:"file"`
	Fields   []kosmos.Finding `json:"fields"`
	Together string           `json:"summary"`
}

func (r imported) text(w io.Writer) error {
	for _, f := range r.Fields {
		if _, err := fmt.Fprintf(w, "%s:%d:%d: %s\n", r.File, f.Line, f.Column, f); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", r.File, r.Together)
	return err
}

// write gives the report as JSON to a file, if one is named.
func (r imported) write(to outFlag) error {
	if to.path == "" {
		return nil
	}
	f, err := beginFile(to, "--report")
	if err != nil {
		return err
	}
	defer f.discard()
	if err := (&outputFlag{"json"}).print(f, r, nil); err != nil {
		return cmp.Or(f.failed, err)
	}
	return f.commit()
}

// inJSON is a list that JSON shows as [] if it is empty.
func inJSON[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
