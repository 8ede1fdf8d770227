// SPDX-License-Identifier: Apache-2.0

// Package trouble decides what conditions say when something around a linked cluster is not as it should be: a CNI that
// cannot be told, IPPools that cannot be made, a wrong clock, controllers of versions that do not fit, kinds that are
// missing, a member that is not heard, too many nodes. It does not measure, read or write anything.
package trouble

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
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
	Made         = "Made"      // the IPPools
	NotNeeded    = "NotNeeded" // the IPPools
	NameTaken    = "NameTaken" // the IPPools: one of somebody else has the name
	Failed       = "Failed"    // the IPPools
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

// CNIFacts is what is known of what gives pods their addresses.
type CNIFacts struct {
	Name, From string // the CNI, and how it was told
	Reason     string // why it cannot be told; empty: it can
	Problem    string // the same for people, with what to do
	Unread     string // why the objects that tell it cannot be read now; empty: they can
}

// CNI says whether it is known what gives pods their addresses.
func CNI(f CNIFacts) Verdict {
	switch {
	case f.Unread != "":
		return Verdict{Unknown, Unread, "the objects that tell the CNI cannot be read: " + f.Unread +
			"; what was learned before counts, and it is tried again"}
	case f.Reason != "":
		return Verdict{No, f.Reason, f.Problem + "; IPPools of Calico for other clusters stay until it can be told"}
	}
	return Verdict{Yes, Told, f.Name + ", by " + f.From}
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
	return Verdict{Yes, InTime, fmt.Sprintf("the clocks of this cluster's controller and of the host cluster's API "+
		"server differ by less than %v", Tolerance)}
}

// Version says whether a member's controller fits the host's. An older one of the same major version does.
//
//	host, member: as programs say them, such as v1.4.2; a member's is empty if it does not say it
func Version(host, member string) Verdict {
	both := fmt.Sprintf("the host cluster's controller has version %.64s, and the member's %.64s", named(host),
		named(member))
	h, m := canonical(host), canonical(member)
	switch {
	case host == member && host != "":
		return Verdict{Yes, Fits, both}
	case h == "" || m == "":
		return Verdict{Unknown, Unversioned, both + ": they cannot be compared"}
	case semver.Major(h) != semver.Major(m):
		return Verdict{No, Incompatible, both + ": they do not understand each other's objects; run one major version in " +
			"both clusters"}
	case semver.Compare(semver.MajorMinor(m), semver.MajorMinor(h)) > 0:
		return Verdict{No, MemberNewer, both + ": the host may not know what the member writes; update the host cluster's " +
			"controller and kinds first, by what 'tombolo controller manifest' prints"}
	}
	return Verdict{Yes, Fits, both}
}

// canonical is a version as they are compared; empty: it is none.
func canonical(version string) string {
	if !strings.HasPrefix(version, "v") {
		version = "v" + version
	}
	if strings.Count(semver.Canonical(version), ".") < 2 || strings.Count(version, ".") < 2 {
		return "" // such as v1, which would be v1.0.0
	}
	return semver.Canonical(version)
}

func named(version string) string {
	if version == "" {
		return "none that it says"
	}
	return version
}

// Newest is the newest of versions; those that cannot be compared count only if there is no other.
func Newest(versions []string) (out string) {
	for _, text := range slices.Sorted(slices.Values(versions)) {
		if out == "" || canonical(text) != "" && semver.Compare(canonical(text), canonical(out)) > 0 {
			out = text
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
	return Verdict{No, KindsMissing, message + ". It continues by itself when they are there"}
}

// NoPools is said of a cluster whose pods do not have their addresses from Calico.
func NoPools() Verdict {
	return Verdict{Yes, NotNeeded, "it is not Calico that gives pods their addresses: no IPPool is needed"}
}

// Pools says whether Calico has the IPPools for ranges of other clusters.
//
//	taken: pools of somebody else with the names of some; failed: why they cannot be kept; empty: they can
func Pools(taken []string, failed string) Verdict {
	const loses = "what pods send to these ranges may lose its source address"
	names := slices.Sorted(slices.Values(taken))
	if more := len(names) - 5; more > 0 {
		names = append(names[:5], fmt.Sprintf("%d more", more))
	}
	switch {
	case failed != "":
		return Verdict{No, Failed, "the IPPools of Calico for ranges of other clusters cannot be kept, and " + loses + ": " +
			failed + "; it is tried again"}
	case len(names) > 0:
		return Verdict{No, NameTaken, "somebody else's IPPool has the name of one for a range of another cluster, and " +
			loses + ": " + strings.Join(names, ", ") + "; give it another name, that does not begin with tombolo-, or " +
			"delete it if nobody needs it. It is looked at again within two minutes"}
	}
	return Verdict{Yes, Made, "Calico has an IPPool for each range of other clusters"}
}

// Report says whether a member is heard.
//
//	silent: for how long nothing was heard of any node; every: how often it should be
func Report(silent, every time.Duration) Verdict {
	if silent > 3*every+time.Minute {
		return Verdict{No, Silent, "no node of the cluster was said to be alive for a while, and what is here may be old; " +
			"see the log of the controller in that cluster, and whether its API server answers"}
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
