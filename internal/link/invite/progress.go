// SPDX-License-Identifier: Apache-2.0

package invite

import (
	"fmt"
	"strconv"
	"strings"
)

// Seen is what the API servers show of a cluster that has joined.
type Seen struct {
	Cluster  string
	Space    string // the namespace of its controller and its mesh
	Heard    bool   // its controller has written the status of the Cluster, for its present spec
	Accepted string // status of the condition RangesAccepted: True, False, Unknown; empty: none
	Why      string // message of that condition
	Mesh     Count  // pods of the mesh; Of is 0 where nodes run it themselves
	Nodes    int    // ClusterNodes of this cluster
	Tunnels  []string
	Others   int // clusters that have nodes, without this one
}

// Count is how many of how many.
type Count struct {
	Up int `json:"up"`
	Of int `json:"of"`
}

func (c Count) String() string { return strconv.Itoa(c.Up) + "/" + strconv.Itoa(c.Of) }

// Step is what a join waits for, or has come to.
type Step struct {
	Text    string
	Next    string // what people may do if it takes long, or if it is refused
	Done    bool   // nothing is waited for any more
	Refused bool   // waiting does not help: people have to change something
}

// Next is the step that s has come to: the first one that is missing.
func Next(s Seen) Step {
	up := Tunnels(s.Tunnels...)
	switch {
	case !s.Heard:
		return Step{Text: "waiting for the controller, which reads this cluster's ranges",
			Next: "see why it does not run, or does not reach the host: kubectl -n " + s.Space +
				" logs deploy/tombolo-link"}
	case s.Accepted == "False":
		return Step{Text: "the host cluster refuses the ranges: " + s.Why, Refused: true,
			Next: "map the ranges (--map CIDR=CIDR with a new line of 'tombolo link token " + s.Cluster +
				"'), or change globalCIDRsMap of the Cluster at the host"}
	case s.Accepted != "True":
		text := "waiting for the host cluster, which judges the ranges"
		if s.Why != "" {
			text += ": " + s.Why
		}
		return Step{Text: text, Next: "name the ranges of pods (clusterPodCIDRs), or see the Cluster at the host: " +
			"kubectl describe clusters.tombolo.dev " + s.Cluster}
	case s.Mesh.Of > 0 && s.Mesh.Up == 0:
		return Step{Text: "waiting for the mesh on nodes: " + s.Mesh.String() + " pods are ready",
			Next: "kubectl -n " + s.Space + " describe daemonset/tombolo-mesh"}
	case s.Nodes == 0:
		return Step{Text: "waiting for nodes that are in the mesh",
			Next: "kubectl get members.tombolo.dev has those that have announced themselves"}
	case s.Others == 0:
		return Step{Text: fmt.Sprintf("linked with %s; there is no other cluster with nodes yet, so no packet passes",
			counted(s.Nodes, "node")), Done: true}
	case up.Up == 0:
		return Step{Text: "waiting for the first packet through a tunnel: " + up.String() + " tunnels are up",
			Next: "tombolo link check"}
	}
	return Step{Text: fmt.Sprintf("packets pass: %s of tunnels of %s are up", up, counted(s.Nodes, "node")), Done: true}
}

// Tunnels adds what ClusterNodes say, such as 3/4. What is none counts nothing.
func Tunnels(list ...string) (out Count) {
	for _, text := range list {
		a, b, ok := strings.Cut(text, "/")
		up, bad := strconv.ParseUint(a, 10, 16)
		of, worse := strconv.ParseUint(b, 10, 16)
		if ok && bad == nil && worse == nil && up <= of {
			out.Up, out.Of = out.Up+int(up), out.Of+int(of)
		}
	}
	return out
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
