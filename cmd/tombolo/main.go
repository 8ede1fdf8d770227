// SPDX-License-Identifier: Apache-2.0

// Command tombolo connects Kubernetes control planes, clusters and nodes across
// networks that cannot route to each other. Each file here is one command or role:
// it parses, calls a package and prints.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// version is set by the linker (-X main.version=...).
var version = "dev"

func main() {
	os.Exit(execute(context.Background(), asReference(os.Args[0], os.Args[1:]), os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	out := &output{to: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	adoptBuiltins(root)
	err := out.verdict(root.ExecuteContext(ctx))
	if err != nil {
		printError(stderr, err)
	}
	return exitCode(err)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "tombolo",
		Short: "Reach Kubernetes clusters that nothing can dial into, and make one network of nodes anywhere",
		Long: `Tombolo connects Kubernetes control planes, clusters and nodes across networks
that cannot route to each other.

A hub runs beside the control planes; an agent in each private network dials out
to it; kube-apiserver then reaches kubelets, pods, services and webhooks through
the hub ('tombolo hub', 'tombolo agent').

Nodes anywhere become one encrypted network, directly through their NATs where
possible, else through a hub's relay ('tombolo mesh', 'tombolo discovery').

Commands that ask a hub, node or discovery service of this machine wait up to 5 s
for one that is starting; with TOMBOLO_WAIT=0 in the environment they fail at once.

Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 the hub, agent,
node or discovery service is not running; 4 not allowed.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			return onlyCommands(cmd, words) // the flag is one of the command that was meant
		}
		f := fault.New(fault.CodeUsage, "the command line cannot be read").Because(err)
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			if near := conf.Near(unknown.GetSpecifiedName(), flagNames(cmd)...); near != "" {
				return f.Hint("did you mean --%s? %s --help", near, cmd.CommandPath())
			}
		}
		var invalid *pflag.InvalidValueError
		if errors.As(err, &invalid) {
			switch flag := invalid.GetFlag(); flag.Value.Type() { // of these the library gives the words of strconv
			case "int":
				f.Whyf("--%s %q: a whole number is expected", flag.Name, invalid.GetValue())
			case "duration":
				f.Whyf("--%s %q: a time such as 90s, 15m or 24h is expected", flag.Name, invalid.GetValue())
			}
		}
		return f.Hint("%s --help", cmd.CommandPath())
	})
	root.AddCommand(
		newHubCommand(), newAgentCommand(), newMeshCommand(), newDiscoveryCommand(), newEdgeCommand(), newControllerCommand(),
		newRouteCommand(),
		newVPNCommand(), newKonnectivityServerCommand(), newKonnectivityAgentCommand(),
		newTokenCommand(),
		newStatusCommand(), newPingCommand(), newConnectCommand(), newEgressConfigCommand(),
		newCertificateCommand(), newRevokeCommand(), newClusterCommand(), newLinkCommand(), newConfigCommand(),
		newPolicyCommand(), newAuditCommand(), newDemoCommand(), newVersionCommand(), newReferenceCommand(),
	)
	completeWords(root)
	return root
}

// flagNames are the flags that a command takes.
func flagNames(cmd *cobra.Command) (out []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { out = append(out, f.Name) })
	return out
}

// adoptBuiltins makes the commands that the library adds report mistakes as ours do.
// It follows SetOut, whose writer they keep.
func adoptBuiltins(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = knownTopic
		case "completion":
			c.Args = onlyCommands
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range c.Commands() {
				shell.Args = exactArgs()
			}
		}
	}
}

// knownTopic accepts the words of a command, for help.
func knownTopic(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return onlyCommands(found, append(rest, args...))
	}
	return nil
}

// printError renders every fault in err with its hint.
func printError(w io.Writer, err error) {
	var f *fault.Fault
	if errors.As(err, &f) {
		fmt.Fprintf(w, "error: %s\n", f.Error())
		if f.Next != "" {
			fmt.Fprintf(w, "hint: %s\n", f.Next)
		}
		return
	}
	fmt.Fprintf(w, "error: %v\n", err)
}

// exitCode maps the class of a fault, the one place where that is done.
func exitCode(err error) int {
	var f *fault.Fault
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &f):
		return 1
	}
	switch fault.ClassOf(f.Code) {
	case fault.Invalid:
		return 2
	case fault.Unavailable, fault.Timeout:
		return 3
	case fault.Denied, fault.Unauthenticated:
		return 4
	}
	return 1
}

// usage is a fault about the command line.
func usage(what string, hint string) error {
	return fault.New(fault.CodeUsage, what).Hint("%s", hint)
}

// onlyCommands is for a command that only groups others: an argument is an unknown command.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	f := fault.Newf(fault.CodeUsage, "there is no command %q", cmd.CommandPath()+" "+args[0]).
		Hint("%s --help lists the commands", cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		f.Hint("did you mean %s? %s --help lists the commands", strings.Join(near, " or "), cmd.CommandPath())
	}
	return f
}

// atLeastOne accepts one argument or more.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return usage(fmt.Sprintf("%s takes at least one %s; none is given", cmd.CommandPath(), name),
			cmd.CommandPath()+" --help")
	}
}

// exactArgs names the arguments that are missing or too many.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := "no arguments"
		if len(names) > 0 {
			want = fmt.Sprintf("%s, %s", plural(len(names), "argument"), strings.Join(names, " "))
		}
		return usage(fmt.Sprintf("%s takes %s; %s", cmd.CommandPath(), want, given(args)), cmd.CommandPath()+" --help")
	}
}

// given counts arguments.
func given(args []string) string {
	switch len(args) {
	case 0:
		return "none was given"
	case 1:
		return "1 was given"
	}
	return fmt.Sprintf("%d were given", len(args))
}

// atMostOne accepts no argument or the one named.
func atMostOne(name string) cobra.PositionalArgs { return atMost("one "+name, 1) }

// atMost accepts up to n arguments; what says which.
func atMost(what string, n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usage(fmt.Sprintf("%s takes at most %s; %s", cmd.CommandPath(), what, given(args)),
			cmd.CommandPath()+" --help")
	}
}
