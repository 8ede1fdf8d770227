// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

// discoveryMemberCommands are those of a node's side.
func discoveryMemberCommands() []*cobra.Command {
	return []*cobra.Command{newMembersCommand(), newWatchCommand(), newAnnounceCommand(), newSecretCommand(),
		newDowngradeCommand()}
}

// lookupFlags name a cluster and where to look up its members.
type lookupFlags struct {
	config, secretFile, clusterID string
	services                      []string
	protocol, caFile, pin         string
	insecure                      bool
	wait                          time.Duration
	socket                        string
	attend                        bool
}

func (f *lookupFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE` (kind MeshConfig); or --secret-file and --service")
	fl.StringVar(&f.socket, "admin-socket", "",
		"`PATH` of the admin socket of the 'tombolo discovery announce' that is asked (env "+announceSocket+")")
	fl.BoolVar(&f.attend, "attend", false, "ask the sources of --config themselves, though a 'tombolo discovery "+
		"announce' runs here")
	fl.DurationVar(&f.wait, "wait", 5*time.Second, "how long the sources may take to tell all they know")
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
func (f *lookupFlags) load() (discoveryclient.Config, error) {
	switch {
	case f.config != "" && (f.secretFile != "" || len(f.services) > 0):
		return discoveryclient.Config{}, usage("--config excludes --secret-file and --service",
			"give --config alone, or the other two")
	case f.config != "":
		data, err := readConfig(f.config)
		if err != nil {
			return discoveryclient.Config{}, err
		}
		return discoveryclient.ParseConfig(f.config, data, meshconf.Check)
	case f.secretFile == "" || len(f.services) == 0:
		return discoveryclient.Config{}, usage("it is not said which cluster is meant",
			"--config FILE, or --secret-file FILE --service URL")
	}
	var services []v1alpha1.MeshService
	for _, u := range f.services {
		services = append(services, v1alpha1.MeshService{URL: u, Protocol: f.protocol, CAFile: f.caFile, Pin: f.pin,
			Insecure: f.insecure})
	}
	return discoveryclient.FromFlags(f.secretFile, f.clusterID, services)
}

// look runs fn beside a discovery client that only watches.
func (f *lookupFlags) look(cmd *cobra.Command, fn func(ctx context.Context, l *discoveryclient.Client) error) error {
	cfg, err := f.load()
	if err != nil {
		return err
	}
	log, err := telemetry.Logger(io.Discard, "", "")
	if err != nil {
		return err
	}
	kubernetes, err := newKubeSource(cfg.Kubernetes, nil, kube.Options{Log: log})
	if err != nil {
		return err
	}
	l, err := discoveryclient.New(cfg, discoveryclient.Options{Log: log, Reg: newRegistry(), Version: version,
		Watch: true, Sources: kubernetes.sources()})
	if err != nil {
		return err
	}
	g := run.NewGroup(cmd.Context())
	g.Go("discovery", l.Run)
	err = fn(g.Context(), l)
	g.Stop()
	return errors.Join(err, g.Wait())
}

// ask says who is asked of members.
func (f *lookupFlags) ask() (asked, error) {
	return f.whom(os.Getenv(announceSocket), mayExist, func() (string, error) {
		cfg, err := f.load()
		return cfg.RunDir, err
	})
}

// fallBack reports whether the sources are asked because no member answers.
func (f *lookupFlags) fallBack(cmd *cobra.Command, a asked, err error) bool {
	if a.must || !fault.Has(err, fault.CodeServiceAway) && !fault.Has(err, fault.CodeUnauthorized) {
		return false
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "note: no 'tombolo discovery announce' answers at %s; the sources are asked "+
		"themselves\n", a.socket)
	return true
}

func newMembersCommand() *cobra.Command {
	var f lookupFlags
	var out outputFlag
	cmd := &cobra.Command{
		Use: "members [NAME]", Short: "List the members of a cluster, with the source of every fact", Args: atMostOne("NAME"),
		Long: `List the members of a cluster. It asks the 'tombolo discovery announce' that runs on
this machine, at the socket of the configuration or the default one; if none runs,
or with --attend, it asks the discovery services, the Kubernetes API, the file and
the cache of the configuration. With a NAME, it shows each fact of that member with
its sources. It announces nothing.`,
		Example: `  tombolo discovery members
  tombolo discovery members --config /etc/tombolo/mesh.yaml
  tombolo discovery members --secret-file cluster.secret --service https://discovery.example.com -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.wait < 0 || f.wait > limit.DiscoveryWait {
				return usage(fmt.Sprintf("--wait %v is not within 0s and %v", f.wait, limit.DiscoveryWait), "--wait 10s")
			}
			a, err := f.ask()
			if err != nil {
				return err
			}
			if a.socket != "" {
				list, err := membersOf(cmd.Context(), a.at(cmd), f.wait)
				if err == nil {
					return printMembers(cmd, out, list, args)
				}
				if !f.fallBack(cmd, a, err) {
					return err
				}
			}
			return f.look(cmd, func(ctx context.Context, l *discoveryclient.Client) error {
				l.AwaitSettled(ctx, f.wait)
				return printMembers(cmd, out, announce.ListOf(l), args)
			})
		},
	}
	f.register(cmd)
	out.register(cmd)
	return cmd
}

func printMembers(cmd *cobra.Command, out outputFlag, list announce.List, names []string) error {
	told := func(s discoveryclient.Status) string {
		if s.State == discoveryclient.StateAttending && s.Reason == "" {
			return "it began without its state, and awaits members itself"
		}
		reason := s.Reason
		if s.Code == fault.CodeServiceAway { // the fault that lists the sources says it
			reason = strings.TrimPrefix(reason, string(s.Code)+": ")
		}
		return word(reason, string(s.State))
	}
	waiting := list.Unsettled()
	if len(waiting) == len(list.Sources) && len(list.Members) == 0 && !list.Attended() {
		f := fault.New(fault.CodeServiceAway, "no source answers").
			Hint("check the services; --wait gives them longer")
		for _, s := range list.Sources {
			f.Why += fmt.Sprintf("\n  %s: %s", s.Source, told(s))
		}
		return f
	}
	if len(names) > 0 {
		list = list.Named(names[0])
		if len(list.Members) == 0 {
			return fault.Newf(fault.CodeNotFound, "there is no member %q", names[0]).Hint("tombolo discovery members lists them")
		}
	}
	for _, s := range waiting {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s has not told all it knows: %s\n", s.Source, told(s))
	}
	for _, s := range list.Sources {
		if s.Junk > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s tells of %s that cannot be opened: of another secret, or damaged; "+
				"'tombolo discovery secret show' tells whose is whose\n",
				s.Source, plural(s.Junk, "message"))
		}
	}
	if hint := nobody(list); hint != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), hint)
	}
	return out.print(cmd.OutOrStdout(), list, func(w io.Writer) error {
		if len(names) > 0 {
			return memberFacts(w, list)
		}
		return memberTable(w, list)
	})
}

func memberTable(w io.Writer, list announce.List) error {
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", word(m.Node, m.ID), word(string(m.Role), "-"), overlay, at, m.Tier,
			lease(m.Until, m.Stale), sources(m.Sources[roster.FieldID]))
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
func memberFacts(w io.Writer, list announce.List) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, m := range list.Members {
		fmt.Fprintln(t, "FACT\tVALUE\tSOURCES")
		for _, field := range m.Stated() {
			fmt.Fprintf(t, "%s\t%s\t%s\n", field.Field, field.Text, sources(field.Sources))
		}
		for i, e := range m.Endpoints {
			fmt.Fprintf(t, "%s\t%s %s\t%s\n", roster.FieldEndpoints, e.Addr, e.Kind, sources(m.Origin(i).Sources))
		}
		fmt.Fprintln(t, "\nSOURCE\tVERSION\tLEASE\tHEARD")
		for _, e := range m.Entries {
			heard := "-"
			if !e.Heard.IsZero() {
				heard = e.Heard.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", e.Source, e.Version, lease(e.Until, e.Stale), heard)
		}
	}
	return t.Flush()
}

func lease(until time.Time, stale bool) string {
	switch {
	case stale:
		return "stale"
	case until.IsZero():
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
	return fmt.Sprintf("%s %s: %s (%s) has it, %s (%s) claims it: %s", c.Field, c.Value, c.Kept.ID,
		sources(c.Kept.Sources), c.Refused.ID, sources(c.Refused.Sources), c.Why)
}

func word(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
