// SPDX-License-Identifier: Apache-2.0

// Command scale measures what grows with the number of agents: memory of
// sessions and streams, the latency of dials, the storm after a restart, a noisy
// neighbour, and whether anything creeps upwards under load for long. The hub is
// the product's, in a process of its own; agents are simulated, many to a
// process, with real TLS, the real greeting and the real carrier. The same for a
// discovery service, its members and its watchers.
//
//	go run ./test/scale -quick -only sessions,storm
//
// docs/scaling.md says what is measured and how.
package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/test/roles"
)

// version is that of the sources, set by the build.
var version = "unknown"

func main() { roles.Main("scale", runRole, runAll) }

// The roles of processes.
const (
	roleHub    = "hub"    // the product's hub, and what calls through it
	roleAgents = "agents" // many simulated agents
	roleBare   = "bare"   // ends of TLS and nothing else

	roleDiscovery = "discovery" // the product's discovery service
	roleEcho      = "echo"      // gRPC and nothing else
	roleMembers   = "members"   // many simulated members and watchers
)

func runRole(name string) error {
	switch name {
	case roleHub:
		return roles.Live(&hubRole{})
	case roleAgents:
		return roles.Live(&agentsRole{})
	case roleBare:
		return roles.Live(&bareRole{})
	case roleDiscovery:
		return roles.Live(&discoveryRole{})
	case roleEcho:
		return roles.Live(&echoRole{})
	case roleMembers:
		return roles.Live(&membersRole{})
	}
	return fmt.Errorf("there is no role %q", name)
}

// size is how large a run is.
type size struct {
	sessions    []int // the steps of the curve, growing
	streams     []int
	carriers    int // sessions that the streams are spread over
	dialled     int // clusters that are dialled
	rate        int // dials a second
	dialFor     time.Duration
	storm       []int
	policies    []int // clusters with a policy
	changes     int
	noisyRounds int
	noisyFor    time.Duration
	soak        time.Duration
	sample      time.Duration // between two looks of the soak
	settle      time.Duration // between a step and the look at it
	meeting     meetingSize
}

// meetingSize is how large the measurements of a discovery service are.
type meetingSize struct {
	members  []int // the steps of the curve, growing, in clusters of usual
	large    int   // members of one large cluster
	settle   time.Duration
	joins    int // of each round
	rounds   int
	updates  time.Duration // of each round
	watchers int
	watched  int // clusters
}

func fullSize() size {
	return size{
		sessions: []int{1000, 2000, 5000, 10_000}, streams: []int{10_000, 20_000, 50_000, 100_000}, carriers: 100,
		dialled: 1000, rate: 1000, dialFor: 10 * time.Second, storm: []int{1000, 2000, 5000},
		policies: []int{1000, 10_000, 100_000}, changes: 50,
		noisyRounds: 5, noisyFor: 4 * time.Second, soak: 20 * time.Minute, sample: time.Second, settle: 5 * time.Second,
		meeting: meetingSize{
			members: []int{20_000, 50_000, 100_000}, large: 10_000, settle: 5 * time.Second, joins: 2000, rounds: 5, updates: 5 * time.Second,
			watchers: 10_000, watched: 1000,
		},
	}
}

func quickSize() size {
	return size{
		sessions: []int{500, 1000, 2000}, streams: []int{5000, 10_000, 20_000}, carriers: 20,
		dialled: 200, rate: 1000, dialFor: 3 * time.Second, storm: []int{500, 1000},
		policies: []int{100, 500, 2000}, changes: 5,
		noisyRounds: 3, noisyFor: 1500 * time.Millisecond, soak: time.Minute, sample: 500 * time.Millisecond, settle: 3 * time.Second,
		meeting: meetingSize{
			members: []int{10_000, 30_000}, large: 10_000, settle: time.Second, joins: 300, rounds: 3, updates: 500 * time.Millisecond,
			watchers: 2000, watched: 100,
		},
	}
}

// options are the command line.
type options struct {
	size
	only    []string
	quick   bool
	out     string
	profile bool
}

func parseOptions(args []string) (o options, err error) {
	var only string
	var soak time.Duration
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.StringVar(&only, "only", "", "measure only these, with commas (default all): "+strings.Join(names(), ","))
	f.BoolVar(&o.quick, "quick", false, "take smaller steps, under 3 minutes")
	f.DurationVar(&soak, "soak", 0, "length of the soak (default 20m, in the quick run 60s)")
	f.StringVar(&o.out, "out", "bench-out", "folder of scale.jsonl and of profiles")
	f.BoolVar(&o.profile, "profile", false, "leave profiles of the hub in -out")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o.only = strings.FieldsFunc(only, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range o.only {
		if !slices.Contains(names(), name) {
			return o, fmt.Errorf("there is no measurement %q: there are %s", name, strings.Join(names(), ", "))
		}
	}
	if o.size = fullSize(); o.quick {
		o.size = quickSize()
	}
	if soak < 0 {
		return o, errors.New("a soak has a positive length")
	}
	if soak > 0 {
		o.soak = soak
	}
	return o, nil
}
