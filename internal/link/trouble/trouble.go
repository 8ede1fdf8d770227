// SPDX-License-Identifier: Apache-2.0

// Package trouble decides what conditions say when something around a linked cluster is not as it should be: a CNI that
// cannot be told, a wrong clock, controllers of versions that do not fit, kinds that are missing, a member that is not
// heard, too many nodes. It does not measure, read or write anything.
package trouble

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

// The status of a condition.
const (
	Yes     = "True"
	No      = "False"
	Unknown = "Unknown"
)

// The reasons, as conditions have them.
const (
	Told         = "Told"         // the CNI
	Unread       = "Unread"       // the CNI: objects cannot be read
	InTime       = "InTime"       // the clock
	ClockAhead   = "ClockAhead"   // the clock of the member
	ClockBehind  = "ClockBehind"  // the clock of the member
	Fits         = "Fits"         // the version
	Unversioned  = "Unversioned"  // the version: one of them is none, as of a build for tests
	MemberNewer  = "MemberNewer"  // the version
	Incompatible = "Incompatible" // the version
	KindsMissing = "KindsMissing"
	Heard        = "Heard"
	Silent       = "Silent"
	WithinBound  = "WithinBound"
	TooManyNodes = "TooManyNodes"
)

const (
	// Tolerance is by how much clocks may differ: tokens and certificates begin to be refused far beyond it.
	Tolerance = 30 * time.Second
	// MostNodes is how many ClusterNodes a cluster may have at its host, whose etcd keeps a NodeConfig with each.
	MostNodes = 1000
)

// Verdict is what a condition says.
type Verdict struct {
	Status, Reason, Message string
}

// CNI says whether it is known what gives pods their addresses.
//
//	known: what was learned last; nil: nothing, as long as something is unread
//	unread: why the objects that tell it cannot be read now; empty: they can
func CNI(known *learn.Result, unread string) Verdict {
	const kept = "; IPPools of Calico for other clusters stay as they are until it can be told"
	if unread != "" {
		return Verdict{Unknown, Unread, "the objects that tell the CNI cannot be read: " + unread +
			"; what was learned before counts, and it is tried again"}
	}
	for _, p := range known.Problems {
		if p.Reason == learn.CNIUnknown || p.Reason == learn.CNIAmbiguous {
			return Verdict{No, string(p.Reason), p.String() + kept}
		}
	}
	return Verdict{Yes, Told, fmt.Sprintf("%s, by %s", known.CNI, known.CNIFrom)}
}

// Skew is by how much a clock is ahead of that of a server, which has stamped its answer to the second; negative: it
// is behind. An answer that took too long tells nothing.
//
//	asked, answered: by the clock in question
func Skew(asked, answered, stamp time.Time) (skew time.Duration, ok bool) {
	took := answered.Sub(asked)
	if took < 0 || took > Tolerance/10 || stamp.IsZero() {
		return 0, false
	}
	return asked.Add(took / 2).Sub(stamp.Add(time.Second / 2)), true
}

// Clock says whether a member's clock is right, by that of the host cluster's API server. Small changes of what was
// measured change nothing in what it says.
func Clock(skew time.Duration) Verdict {
	by := skew.Abs().Round(10 * time.Second)
	const next = "; set the clocks of the nodes of both clusters by NTP: certificates, tokens and times of objects " +
		"are judged by them"
	switch {
	case skew > Tolerance:
		return Verdict{No, ClockAhead, fmt.Sprintf("the clock of this cluster's controller is about %v ahead of that of the "+
			"host cluster's API server", by) + next}
	case skew < -Tolerance:
		return Verdict{No, ClockBehind, fmt.Sprintf("the clock of this cluster's controller is about %v behind that of the "+
			"host cluster's API server", by) + next}
	}
	return Verdict{Yes, InTime, fmt.Sprintf("the clocks of this cluster's controller and of the host cluster's API server "+
		"differ by less than %v", Tolerance)}
}

// Version says whether a member's controller fits the host's. An older one of the same major version does.
//
//	host, member: as programs say them, such as v1.4.2; a member's is empty if it does not say it
func Version(host, member string) Verdict {
	h, bad := version.ParseSemantic(host)
	m, worse := version.ParseSemantic(member)
	both := fmt.Sprintf("the host cluster's controller has version %.64s, and the member's %.64s", named(host), named(member))
	switch {
	case bad != nil || worse != nil:
		return Verdict{Unknown, Unversioned, both + ": they cannot be compared"}
	case h.Major() != m.Major():
		return Verdict{No, Incompatible, both + ": they do not understand each other's objects; run one major version in both " +
			"clusters"}
	case m.Minor() > h.Minor():
		return Verdict{No, MemberNewer, both + ": the host may not know what the member writes; update the host cluster's " +
			"controller and kinds first, by what 'tombolo controller manifest' prints"}
	}
	return Verdict{Yes, Fits, both}
}

func named(version string) string {
	if version == "" {
		return "none that it says"
	}
	return version
}

// Newest is the newest of versions; those that cannot be compared count only if there is no other.
func Newest(versions []string) (out string) {
	var best *version.Version
	for _, text := range slices.Sorted(slices.Values(versions)) {
		v, err := version.ParseSemantic(text)
		if err != nil && best == nil && out == "" {
			out = text
		}
		if err == nil && (best == nil || best.LessThan(v)) {
			best, out = v, text
		}
	}
	return out
}

// manifests are the commands that print definitions of kinds.
var manifests = map[string]string{"members.tombolo.dev": "tombolo discovery manifest"}

// Kinds says which definitions an API server lacks.
//
//	where: such as "the host cluster"
//	missing: their names, such as clusters.tombolo.dev
func Kinds(where string, missing []string) Verdict {
	if len(missing) == 0 {
		return Verdict{Yes, Fits, where + " has all kinds"}
	}
	missing = slices.Sorted(slices.Values(missing))
	var commands []string
	for _, name := range missing {
		command := manifests[name]
		if command == "" && strings.HasSuffix(name, ".tombolo.dev") {
			command = "tombolo controller manifest"
		}
		if command = "'" + command + "'"; command != "''" && !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
	message := where + " lacks the CustomResourceDefinition " + strings.Join(missing, ", ")
	if len(commands) > 0 {
		message += "; apply there what " + strings.Join(commands, " and ") + " prints"
	}
	return Verdict{No, KindsMissing, message + ". It goes on by itself when they are there"}
}

// Report says whether a member is heard.
//
//	silent: for how long nothing was heard of any node; every: how often it should be
func Report(silent, every time.Duration) Verdict {
	if silent > 3*every+time.Minute {
		return Verdict{No, Silent, "no node of the cluster was said to be alive for a while, and what is here may be old; see " +
			"the log of the controller in that cluster, and whether its API server answers"}
	}
	return Verdict{Yes, Heard, "the cluster says that its nodes are alive"}
}

// Nodes says whether a cluster has as many nodes as it may.
func Nodes(n int) Verdict {
	if n >= MostNodes {
		return Verdict{No, TooManyNodes, fmt.Sprintf("the cluster has %d ClusterNodes or more, and no further ones are "+
			"admitted; exclude nodes by spec.excludeNodes or spec.excludeSelector, or delete those that nobody needs",
			MostNodes)}
	}
	return Verdict{Yes, WithinBound, fmt.Sprintf("the cluster has fewer than %d ClusterNodes", MostNodes)}
}
