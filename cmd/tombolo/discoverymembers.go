// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/finder"
	"github.com/tombolo-io/tombolo/internal/roster"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/tell"
)

// discoveryMemberCommands are those of a node's side.
func discoveryMemberCommands() []*cobra.Command {
	return []*cobra.Command{newMembersCommand(), newWatchCommand(), newAnnounceCommand(), newSecretCommand()}
}

// finderFlags say which cluster is looked at, and where.
type finderFlags struct {
	config, secretFile, clusterID string
	services                      []string
	protocol, caFile, pin         string
	insecure                      bool
	wait                          time.Duration
}

func (f *finderFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE` (kind MeshConfig); or --secret-file and --service")
	fl.StringVar(&f.secretFile, "secret-file", "", "`FILE` with the cluster's secret, mode 0600")
	fl.StringVar(&f.clusterID, "cluster-id", "", "the cluster's `ID` at services of the older protocol")
	fl.StringArrayVar(&f.services, "service", nil, "`URL` of a discovery service; may be repeated")
	fl.StringVar(&f.protocol, "protocol", "auto", "auto, native or sidero")
	fl.StringVar(&f.caFile, "ca-file", "", "`FILE` with the CAs of the services")
	fl.StringVar(&f.pin, "pin", "", "`PIN` of the services' CA, as 'tombolo discovery status' shows it")
	fl.BoolVar(&f.insecure, "insecure", false, "permit http")
	offer(cmd, "protocol", "auto", "native", "sidero")
}

// load gives the configuration of the file or of the flags.
func (f *finderFlags) load() (finder.Config, error) {
	switch {
	case f.config != "" && (f.secretFile != "" || len(f.services) > 0):
		return finder.Config{}, usage("--config stands beside --secret-file or --service", "give --config alone, or the other two")
	case f.config != "":
		data, err := readConfig(f.config)
		if err != nil {
			return finder.Config{}, err
		}
		return finder.ParseConfig(f.config, data)
	case f.secretFile == "" || len(f.services) == 0:
		return finder.Config{}, usage("it is not said which cluster is meant", "--config FILE, or --secret-file FILE --service URL")
	}
	var services []v1alpha1.MeshService
	for _, u := range f.services {
		services = append(services, v1alpha1.MeshService{URL: u, Protocol: f.protocol, CAFile: f.caFile, Pin: f.pin, Insecure: f.insecure})
	}
	return finder.FromFlags(f.secretFile, f.clusterID, services)
}

// look runs fn beside a finder that only watches.
func (f *finderFlags) look(cmd *cobra.Command, fn func(ctx context.Context, l *finder.Finder) error) error {
	cfg, err := f.load()
	if err != nil {
		return err
	}
	log, err := tell.Logger(io.Discard, "", "")
	if err != nil {
		return err
	}
	l, err := finder.New(cfg, finder.Options{Log: log, Reg: newRegistry(), Version: version, Watch: true})
	if err != nil {
		return err
	}
	g := run.NewGroup(cmd.Context())
	g.Go("discovery", l.Run)
	err = fn(g.Context(), l)
	g.Stop()
	return errors.Join(err, g.Wait())
}

// memberList is what `discovery members -o json` prints.
type memberList struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Members    []roster.Member   `json:"members"`
	Conflicts  []roster.Conflict `json:"conflicts,omitempty"`
	Sources    []finder.Status   `json:"sources"`
}

func newMembersCommand() *cobra.Command {
	var f finderFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "members [NAME]", Short: "List the members of a cluster, with the source of every fact", Args: atMostOne("NAME"),
		Long: `List the members of a cluster as its discovery services, the file and the cache of
the configuration tell of them. With a NAME, each fact of that member is shown
with its sources. It announces nothing.`,
		Example: "  tombolo discovery members --config /etc/tombolo/mesh.yaml\n" +
			"  tombolo discovery members --secret-file cluster.secret --service https://discovery.example.com -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.look(cmd, func(ctx context.Context, l *finder.Finder) error {
				waiting := settled(ctx, l, f.wait)
				return printMembers(cmd, out, l, args, waiting)
			})
		},
	}
	f.register(cmd)
	out.register(cmd)
	cmd.Flags().DurationVar(&f.wait, "wait", 5*time.Second, "how long the sources may take to tell all they know")
	return cmd
}

// settled waits until every source has told all, and names those that have not.
func settled(ctx context.Context, l *finder.Finder, most time.Duration) []string {
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		waiting := l.Settled()
		if len(waiting) == 0 {
			return nil
		}
		look := time.NewTimer(20 * time.Millisecond)
		select {
		case <-look.C:
		case <-end.C:
			return waiting
		case <-ctx.Done():
			look.Stop()
			return waiting
		}
	}
}

func printMembers(cmd *cobra.Command, out outputFlag, l *finder.Finder, names, waiting []string) error {
	result := l.Merged()
	list := memberList{APIVersion: v1alpha1.Version, Kind: "DiscoveryMembers", Members: result.Members, Conflicts: result.Conflicts, Sources: l.Status()}
	told := func(s finder.Status) string {
		if s.State == finder.StateAttending && s.Reason == "" {
			return "it began without its state, and awaits members itself"
		}
		return word(s.Reason, string(s.State))
	}
	attended := slices.ContainsFunc(list.Sources, func(s finder.Status) bool { return s.State == finder.StateAttending })
	if len(waiting) == len(list.Sources) && len(list.Members) == 0 && !attended {
		f := fault.New(fault.CodeServiceAway, "no source tells of members").Hint("see to the services; --wait gives them longer")
		for _, s := range list.Sources {
			f.Why += fmt.Sprintf("\n  %s: %s", s.Source, told(s))
		}
		return f
	}
	if len(names) > 0 {
		list.Members = slices.DeleteFunc(slices.Clone(list.Members), func(m roster.Member) bool {
			return m.Node != names[0] && m.ID != names[0] && m.Nodename != names[0]
		})
		if len(list.Members) == 0 {
			return fault.Newf(fault.CodeNotFound, "there is no member %q", names[0]).Hint("tombolo discovery members lists them")
		}
	}
	for _, name := range waiting {
		i := slices.IndexFunc(list.Sources, func(s finder.Status) bool { return s.Source == name })
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s has not told all it knows: %s\n", name, told(list.Sources[i]))
	}
	return out.print(cmd.OutOrStdout(), list, func(w io.Writer) error {
		if len(names) > 0 {
			return memberFacts(w, list)
		}
		return memberTable(w, list)
	})
}

func memberTable(w io.Writer, list memberList) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NODE\tROLE\tOVERLAY\tENDPOINTS\tTIER\tLEASE\tSOURCES")
	for _, m := range list.Members {
		overlay, at := "-", "-"
		if m.Overlay6.IsValid() {
			overlay = m.Overlay6.String()
		}
		if n := len(m.Endpoints); n > 0 {
			at = m.Endpoints[0].Addr.String()
			if n > 1 {
				at += fmt.Sprintf(" +%d", n-1)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", word(m.Node, m.ID), word(m.Role, "-"), overlay, at, m.Tier, lease(m.Until), sources(m.Sources[roster.FieldID]))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range list.Conflicts {
		fmt.Fprintf(w, "conflict: %s\n", conflict(c))
	}
	return nil
}

// memberFacts prints every fact with its sources.
func memberFacts(w io.Writer, list memberList) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, m := range list.Members {
		fmt.Fprintln(t, "FACT\tVALUE\tSOURCES")
		for _, field := range m.Stated() {
			fmt.Fprintf(t, "%s\t%s\t%s\n", field.Field, field.Text, sources(field.Sources))
		}
		for _, e := range m.Endpoints {
			fmt.Fprintf(t, "%s\t%s %s\t%s\n", roster.FieldEndpoints, e.Addr, e.Kind, sources(e.Sources))
		}
		fmt.Fprintln(t, "\nSOURCE\tVERSION\tLEASE\tHEARD")
		for _, e := range m.Entries {
			heard := "-"
			if !e.Heard.IsZero() {
				heard = e.Heard.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", e.Source, e.Version, lease(e.Until), heard)
		}
	}
	return t.Flush()
}

func lease(until time.Time) string {
	if until.IsZero() {
		return "-"
	}
	return time.Until(until).Round(time.Second).String()
}

func sources(in []roster.Source) string {
	var out []string
	for _, s := range in {
		out = append(out, s.String())
	}
	return strings.Join(out, ", ")
}

func conflict(c roster.Conflict) string {
	return fmt.Sprintf("%s %s: %s (%s) has it, %s (%s) claims it: %s", c.Field, c.Value, c.Kept.ID, sources(c.Kept.Sources), c.Refused.ID, sources(c.Refused.Sources), c.Why)
}

func word(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func newWatchCommand() *cobra.Command {
	var f finderFlags
	var format string
	cmd := &cobra.Command{
		Use: "watch", Short: "Print what happens to the members of a cluster, as it happens", Args: exactArgs(),
		Long: `Print a line for each member that joins, changes or leaves, and for each conflict,
beginning with those that are known; with -o json a line of JSON each. A reader
that is slow is told less often, and misses nothing that lasts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return usage(fmt.Sprintf("--output %q is neither text nor json", format), "--output text")
			}
			return f.look(cmd, func(ctx context.Context, l *finder.Finder) error {
				for w := l.Watch(); ; {
					events, _, err := w.Next(ctx)
					if err != nil {
						return nil
					}
					for _, e := range events {
						if err := printEvent(cmd.OutOrStdout(), format, e); err != nil {
							return err
						}
					}
				}
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, or json with a line for each event")
	offer(cmd, "output", "text", "json")
	return cmd
}

func printEvent(w io.Writer, format string, e roster.Event) error {
	if format == "json" {
		return json.NewEncoder(w).Encode(e)
	}
	line := string(e.What)
	switch {
	case e.Conflict != nil:
		line += " " + conflict(*e.Conflict)
	case e.Member != nil:
		line += " " + word(e.Member.Node, e.Member.ID)
		for _, f := range e.Fields {
			line += " " + string(f)
		}
		line += " (" + sources(e.Member.Sources[roster.FieldID]) + ")"
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
