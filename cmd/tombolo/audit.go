// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

func newAuditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Read the records of who reached what", Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAuditQueryCommand(), newAuditTailCommand())
	return cmd
}

func newAuditQueryCommand() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "query FILE...",
		Short: "Print the records that match",
		Long: `Reads files of audit records, each with its rotated files, the oldest first; - is
stdin. A record of lost records is shown whatever the filters, except that of time. A
line that is not a record is reported on stderr and left out.`,
		Example: `  tombolo audit query /var/log/tombolo/hub-audit.jsonl --cluster c1 --denied --since 24h
  tombolo audit query hub-audit.jsonl --target 10.0.0.0/8 --caller 'unix:c1/*' -o json | jq .rule`,
		Args:        atLeastOne("FILE"),
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			p := f.printer(cmd)
			if err := readAudit(cmd, args, filter, p.print); err != nil {
				return err
			}
			return p.flush()
		},
	}
	f.register(cmd)
	return cmd
}

func newAuditTailCommand() *cobra.Command {
	var f auditFlags
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use:   "tail FILE",
		Short: "Print the newest records, and with -f new ones as they come",
		Long: `Prints the last records that match, from the rotated files too, the newest last. With
-f it continues until it is interrupted, across rotations, and waits for a file that
does not exist yet.`,
		Example: `  tombolo audit tail /var/log/tombolo/hub-audit.jsonl
  tombolo audit tail -f /var/log/tombolo/hub-audit.jsonl --denied`,
		Args:        exactArgs("FILE"),
		Annotations: map[string]string{takesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			if lines < 0 || lines > auditTail {
				return usage(fmt.Sprintf("--lines is %d; 0 to %d are accepted", lines, auditTail),
					"tombolo audit tail -n 10 FILE, or tombolo audit query FILE for all")
			}
			last := &newest{most: lines, print: f.printer(cmd)}
			if !follow {
				if err := readAudit(cmd, args, filter, last.keep); err != nil {
					return err
				}
				return last.show()
			}
			return followAudit(cmd, args[0], filter, last)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow what is written from now on")
	cmd.Flags().IntVarP(&lines, "lines", "n", 10, "print the last `NUMBER` records")
	return cmd
}

// auditFlags choose records and say how they are printed.
type auditFlags struct {
	want                 audit.Filter
	since, until, target string
	out                  linesFlag
}

func (f *auditFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.want.Cluster, "cluster", "", "of this `CLUSTER`; one * stands for any text")
	fl.StringVar(&f.want.Caller, "caller", "", "by this `CALLER`, such as unix:c1/connect; one * stands for any text")
	fl.StringVar(&f.want.Agent, "agent", "", "through this `AGENT`; one * stands for any text")
	fl.StringVar(&f.want.Rule, "rule", "", "decided by this `RULE`; one * stands for any text")
	fl.StringVar(&f.want.Code, "code", "", "that ended with this `CODE`: ok, or a fault code")
	fl.StringVar(&f.since, "since", "", "that began at this `TIME` or later: 2006-01-02T15:04:05Z, 2006-01-02, or 90m "+
		"for 90 minutes ago")
	fl.StringVar(&f.until, "until", "", "that began before this `TIME`")
	fl.StringVar(&f.target, "target", "", "to this `TARGET`, asked for or resolved: HOST, HOST:PORT, an address or a CIDR")
	fl.BoolVar(&f.want.Denied, "denied", false, "that a policy denied")
	f.out.register(cmd)
}

func (f *auditFlags) filter(now time.Time) (audit.Filter, error) {
	want := f.want
	var err error
	if want.Since, err = pointInTime(f.since, now); err != nil {
		return want, fault.New(fault.CodeUsage, "--since cannot be read").Because(err).
			Hint("write 2006-01-02T15:04:05Z, 2006-01-02 or 90m")
	}
	if want.Until, err = pointInTime(f.until, now); err != nil {
		return want, fault.New(fault.CodeUsage, "--until cannot be read").Because(err).
			Hint("write 2006-01-02T15:04:05Z, 2006-01-02 or 90m")
	}
	if want.Target, err = audit.ParseTarget(f.target); err != nil {
		return want, fault.New(fault.CodeUsage, "--target cannot be read").Because(err).
			Hint("write 10.0.0.1, db.svc:5432, [fd00::1]:443 or 10.0.0.0/8")
	}
	for _, pattern := range []string{want.Cluster, want.Caller, want.Agent, want.Rule} {
		if strings.Count(pattern, "*") > 1 {
			return want, usage(fmt.Sprintf("%q has more than one *", pattern), "write one * at most, such as unix:c1/*")
		}
	}
	if want.Code != "" && want.Code != "ok" && want.Code != "other" && !knownCode(want.Code) {
		return want, usage(fmt.Sprintf("there is no code %q", want.Code), "write ok, or a code of docs/reference/faults.md")
	}
	return want, nil
}

func knownCode(code string) bool {
	for _, e := range fault.Table() {
		if string(e.Code) == code {
			return true
		}
	}
	return false
}

// pointInTime reads a time, a day in UTC, or a span before now.
func pointInTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d.Abs()), nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	return time.Parse(time.RFC3339, s)
}

// linesFlag is -o for what is printed line by line.
type linesFlag struct{ format string }

func (o *linesFlag) String() string { return o.format }
func (o *linesFlag) Type() string   { return "string" }

// Set accepts a format.
func (o *linesFlag) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("%q is neither text nor json", s)
	}
	o.format = s
	return nil
}

func (o *linesFlag) register(cmd *cobra.Command) {
	o.format = "text"
	cmd.Flags().VarP(o, "output", "o", "text, or json with one record in each line")
	offer(cmd, "output", "text", "json")
}

// auditPrinter prints records, many in one write.
type auditPrinter struct {
	to   *bufio.Writer
	json bool
}

func (f *auditFlags) printer(cmd *cobra.Command) *auditPrinter {
	return &auditPrinter{bufio.NewWriter(cmd.OutOrStdout()), f.out.format == "json"}
}

func (p *auditPrinter) print(r audit.Record) error {
	if p.json {
		_, err := p.to.Write(audit.Append(nil, r))
		return err
	}
	_, err := p.to.WriteString(auditText(r))
	return err
}

func (p *auditPrinter) flush() error { return p.to.Flush() }

// auditText renders a record as one line for people.
func auditText(r audit.Record) string {
	var b strings.Builder
	b.WriteString(r.Time.Local().Format("2006-01-02 15:04:05.000 "))
	if r.Kind == audit.KindLost {
		fmt.Fprintf(&b, "lost     %d records are missing, the first since %s\n", r.Count,
			r.Since.Local().Format("15:04:05.000"))
		return b.String()
	}
	fmt.Fprintf(&b, "%-8s", r.Kind)
	caller, about := r.Caller, r.Asked
	if r.Subject != "" { // an operator's change
		caller, about = cmp.Or(r.Operator, r.Caller), r.Subject
	}
	for _, s := range []string{r.Cluster, caller, "->", about} {
		b.WriteString(" " + plain(s))
	}
	if r.Resolved != "" && r.Resolved != r.Asked {
		b.WriteString(" (" + plain(r.Resolved) + ")")
	}
	for _, part := range []struct{ name, value string }{{"via", r.Agent}, {"", r.Verdict}, {"by", r.Rule}, {"", r.Code},
		{"uid", uid(r)}, {"serial", r.Serial},
		{"from", r.Source}} {
		if part.value != "" {
			b.WriteString(" " + strings.TrimLeft(part.name+" "+plain(part.value), " "))
		}
	}
	fmt.Fprintf(&b, " %v", time.Duration(r.Duration).Round(time.Millisecond))
	if r.Up+r.Down > 0 {
		fmt.Fprintf(&b, " up %d down %d", r.Up, r.Down)
	}
	if r.Reason != "" {
		b.WriteString(": " + plain(r.Reason))
	}
	return b.String() + "\n"
}

func uid(r audit.Record) string {
	if r.Peer == nil {
		return ""
	}
	return strconv.FormatUint(uint64(r.Peer.UID), 10)
}

// plain is a text that cannot steer a terminal; - stands for none.
func plain(s string) string {
	if s == "" {
		return "-"
	}
	if !untrusted.Printable(s) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// readAudit gives the matching records of files and those that belong to them.
func readAudit(cmd *cobra.Command, paths []string, filter audit.Filter, take func(audit.Record) error) error {
	if slices.Contains(paths, audit.Stdout) {
		if err := readRecords(cmd, audit.NewReader("stdin", cmd.InOrStdin()), filter, take); err != nil {
			return err
		}
		paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == audit.Stdout })
	}
	files, err := audit.Files(paths...)
	if err != nil {
		return err
	}
	for _, file := range files {
		in, err := audit.Open(file)
		if err != nil {
			return err
		}
		err = readRecords(cmd, audit.NewReader(file, in), filter, take)
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}

func readRecords(cmd *cobra.Command, in *audit.Reader, filter audit.Filter, take func(audit.Record) error) error {
	for {
		r, err := in.Next()
		var bad *audit.Broken
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &bad):
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", bad)
		case err != nil:
			return fault.New(fault.CodeUsage, "the records cannot be read to their end").Because(err).
				Hint("name a file of audit records that is whole")
		case filter.Match(r):
			if err := take(r); err != nil {
				return err
			}
		}
	}
}

// newest keeps the last records until they are shown.
type newest struct {
	most  int
	kept  []audit.Record
	print *auditPrinter
}

func (l *newest) keep(r audit.Record) error {
	if l.kept = append(l.kept, r); len(l.kept) > 2*l.most+1024 {
		l.kept = append(l.kept[:0], l.kept[len(l.kept)-l.most:]...)
	}
	return nil
}

func (l *newest) show() error {
	for _, r := range l.kept[max(0, len(l.kept)-l.most):] {
		if err := l.print.print(r); err != nil {
			return err
		}
	}
	l.kept = nil
	return l.print.flush()
}

// followAudit shows the newest records and then each that comes, until a signal.
func followAudit(cmd *cobra.Command, path string, filter audit.Filter, last *newest) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	older, err := audit.Older(path)
	if err != nil {
		return err
	}
	for _, file := range older {
		err := readAudit(cmd, []string{file}, filter, last.keep)
		if errors.Is(err, fs.ErrNotExist) { // its writer keeps so many
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s was removed before it was read\n", file)
			continue
		}
		if err != nil {
			return err
		}
	}
	live := false
	return audit.Follow(ctx, path, older, audit.Listener{
		Take: func(r audit.Record) error {
			switch {
			case !filter.Match(r):
				return nil
			case !live:
				return last.keep(r)
			}
			return errors.Join(last.print.print(r), last.print.flush())
		},
		Broken: func(b *audit.Broken) error {
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", b)
			return err
		},
		CaughtUp: func() error {
			live = true
			return last.show()
		},
	})
}
