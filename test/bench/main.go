// SPDX-License-Identifier: Apache-2.0

// Command bench measures the data path: our mux beside plain TCP, plain TLS and
// yamux, and the whole chain beside a direct connection and a relay over plain
// TLS. Everything that it compares runs in one run, in turns, in processes of
// its own whose CPU time is counted. It asserts nothing about the product's
// behaviour; the figures of `make bench-quick` have bounds, see targets.go.
//
//	go run ./test/bench -only bulk1,ping -transports tls,mux1,mux2 -rounds 3
//
// docs/performance.md says what is measured and how.
package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/test/roles"
)

// version is that of the sources, set by the build.
var version = "unknown"

func main() { roles.Main("bench", runRole, runAll) }

// runRole is the life of one of the driver's processes.
func runRole(name string) error {
	r, err := newRole(name)
	if err != nil {
		return err
	}
	return roles.Live(&windowed{role: r})
}

func newRole(name string) (role, error) {
	switch name {
	case roleLoad:
		return &load{}, nil
	case roleServe:
		return &farEnd{}, nil
	case rolePath:
		return &path{}, nil
	case roleRelay:
		return &relay{}, nil
	case roleHub:
		return &hubRoom{}, nil
	case roleAgent:
		return &agentRoom{}, nil
	case roleEdge:
		return &edgeRoom{}, nil
	case roleTables:
		return &tables{}, nil
	}
	return nil, fmt.Errorf("there is no role %q", name)
}

// The roles of processes.
const (
	roleLoad  = "load"  // opens streams
	roleServe = "serve" // their far end
	rolePath  = "path"  // a long or narrow way
	roleRelay = "relay" // one half of a relay over plain TLS
	roleHub   = "hub"   // the product's hub
	roleAgent = "agent" // the product's agent

	roleEdge   = "edge"   // the product's edge
	roleTables = "tables" // what an edge has in memory
)

// options are the command line.
type options struct {
	only       []string
	transports []string
	rounds     int
	fixed      bool // rounds are as the command line says
	window     time.Duration
	lanes      int
	quick      bool
	out        string
	profile    bool
	compare    string
	tombolo    string // the program
}

func parseOptions(args []string) (options, error) {
	var o options
	var only, transports string
	var seconds float64
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&only, "only", "", "measure only these, with commas (default all): "+strings.Join(names(), ","))
	f.StringVar(&transports, "transports", "", "measure only on these, with commas: tcp, tls, muxN, yamuxN; for end to end: "+
		strings.Join(chains(), ", ")+"; for the edge: "+strings.Join(doors(), ", ")+
		"; for routed mode: "+strings.Join(ways(), ", ")+"; for konnectivity: "+strings.Join(egresses(), ", "))
	f.IntVar(&o.rounds, "rounds", 0, "rounds; default 6, in the quick run 5")
	f.Float64Var(&seconds, "seconds", 0, "length of a measured window; default 1, in the quick run 0.5")
	f.IntVar(&o.lanes, "lanes", defaultLanes(), "connections of the mux in the lines of the quick run")
	f.BoolVar(&o.quick, "quick", false, "measure what the targets are about and judge it: exit code 1 when one is short")
	f.StringVar(&o.out, "out", "bench-out", "folder of results.jsonl and of profiles")
	f.BoolVar(&o.profile, "profile", false, "leave a CPU and an allocation profile of each process and window in -out")
	f.StringVar(&o.compare, "compare", "", "compare with this results.jsonl of an earlier run (benchstat)")
	f.StringVar(&o.tombolo, "tombolo", "bin/tombolo", "the program whose konnectivity server and agent are measured")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o.only, o.transports = list(only), list(transports)
	for _, name := range o.only {
		if _, ok := find(name); !ok {
			return o, fmt.Errorf("there is no measurement %q: there are %s", name, strings.Join(names(), ", "))
		}
	}
	for _, name := range o.transports {
		if err := checkTransport(name); err != nil {
			return o, err
		}
	}
	o.window = time.Duration(seconds * float64(time.Second))
	if o.rounds < 0 || seconds < 0 || o.lanes < 1 {
		return o, errors.New("rounds, seconds and lanes are positive")
	}
	o.fixed = o.rounds > 0
	return o.withDefaults(), nil
}

func (o options) withDefaults() options {
	if o.rounds == 0 {
		if o.rounds = 6; o.quick { // benchstat wants six
			o.rounds = 5
		}
	}
	if o.window == 0 {
		if o.window = time.Second; o.quick {
			o.window = 500 * time.Millisecond
		}
	}
	return o
}

// list splits at commas; the empty text has no elements.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
