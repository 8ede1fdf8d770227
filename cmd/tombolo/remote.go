// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// remoteFlags are how a command reaches the running hub.
type remoteFlags struct {
	socket, hub, operator string
	patient
}

// patient lets a command wait for a socket that does not exist yet; note is where it says
// so.
type patient struct{ stderr io.Writer }

func (p *patient) note(cmd *cobra.Command) { p.stderr = cmd.ErrOrStderr() }

// patience is how long a command waits for a process that may just have been started.
func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TOMBOLO_WAIT")); err == nil {
		return d
	}
	return limit.SocketWait
}

// until asks again while a node of the mesh is not up yet, or does not know the peer in
// question: both may just have been started.
func (p patient) until(ctx context.Context, ask func() error) error {
	begun, noted := time.Now(), false
	for {
		err := ask()
		early := fault.Has(err, fault.CodeNotFound) || fault.Has(err, fault.CodeMeshAway)
		if p.stderr == nil || !early || time.Since(begun) >= patience() || !run.Wait(ctx, limit.SocketPoll) {
			return err
		}
		if !noted {
			fmt.Fprintf(p.stderr, "note: %s; waiting up to %v\n", fault.From(err).What, patience())
		}
		noted = true
	}
}

// at is a socket that is asked.
type at struct {
	socket string
	patient
}

func (a at) client() *admin.Client {
	c := admin.OverSocket(a.socket)
	if a.stderr == nil {
		return c
	}
	most := patience()
	return c.Await(most, func() {
		fmt.Fprintf(a.stderr, "note: nobody answers at %s yet; waiting up to %v\n", a.socket, most)
	})
}

func (r *remoteFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&r.socket, "admin-socket", hub.AdminSocket(hub.DefaultConfig().RunDir),
		"`PATH` of the hub's admin socket (env TOMBOLO_ADMIN_SOCKET)")
	fl.StringVar(&r.hub, "hub", "", "reach the hub at `HOST:PORT` instead (env TOMBOLO_HUB); needs --operator")
	fl.StringVar(&r.operator, "operator", "",
		"`FILE` made by 'tombolo certificate issue --role operator' (env TOMBOLO_OPERATOR)")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		r.note(cmd)
		r.fromEnvironment(cmd)
	}
}

// fromEnvironment sets what the command line leaves out.
func (r *remoteFlags) fromEnvironment(cmd *cobra.Command) {
	fl := cmd.Flags()
	for name, env := range map[string]string{
		"admin-socket": "TOMBOLO_ADMIN_SOCKET", "hub": "TOMBOLO_HUB", "operator": "TOMBOLO_OPERATOR",
	} {
		if value := os.Getenv(env); value != "" && !fl.Changed(name) {
			fl.Lookup(name).Value.Set(value)
		}
	}
}

func (r *remoteFlags) client() (*admin.Client, error) {
	if r.hub == "" {
		if r.operator != "" && r.socket == "" {
			return nil, usage("--operator needs --hub", "name the hub with --hub HOST:PORT")
		}
		return at{r.socket, r.patient}.client(), nil
	}
	if r.operator == "" {
		return nil, usage("--hub needs --operator",
			"make the file on the hub's machine: tombolo certificate issue --role operator --name NAME --out FILE")
	}
	address, err := hub.Advertised(r.hub, hub.DefaultConfig().Listen)
	if err != nil {
		return nil, fault.New(fault.CodeUsage, "--hub cannot be read").Because(err).Hint("write HOST or HOST:PORT")
	}
	cert, ca, err := trust.ReadBundle("operator", r.operator)
	if err != nil {
		return nil, err
	}
	check := func() trust.Check { return trust.Check{Roots: trust.RootsOf(ca), Now: time.Now()} }
	return admin.OverTLS(address, trust.HubClientConfig(check, cert, "http/1.1"), splice.Below), nil
}

// outputFlag is -o with its formats. It is checked when it is parsed: a command
// that cannot print its answer must not do anything.
type outputFlag struct{ format string }

func (o *outputFlag) String() string { return o.format }
func (o *outputFlag) Type() string   { return "string" }

// Set accepts a format.
func (o *outputFlag) Set(s string) error {
	switch s {
	case "text", "json", "yaml":
		o.format = s
		return nil
	}
	return fmt.Errorf("%q is none of text, json, yaml", s)
}

func (o *outputFlag) register(cmd *cobra.Command) {
	o.format = "text"
	cmd.Flags().VarP(o, "output", "o", "text, json or yaml")
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "yaml"},
		cobra.ShellCompDirectiveNoFileComp))
}

// print renders v as the flag says; text renders it for people.
func (o *outputFlag) print(w io.Writer, v any, text func(io.Writer) error) error {
	switch o.format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	case "yaml":
		// Through JSON, so that both have the same names.
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		var node yaml.Node
		if err := yaml.Unmarshal(data, &node); err != nil {
			return err
		}
		blockStyle(&node)
		enc := yaml.NewEncoder(w)
		enc.SetIndent(2)
		return enc.Encode(&node)
	}
	return text(w)
}

// blockStyle drops the flow style and quotes of JSON.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}
