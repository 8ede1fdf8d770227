// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"slices"
	"strings"
)

const (
	resourceServiceCIDRs = "servicecidrs"
	resourceServices     = "services"
	resourcePods         = "pods"
	flagServices         = "--service-cluster-ip-range"
	answerFrom           = "answer to an invalid Service"
)

// AskService reports whether the API server has to be asked with an invalid Service: if nothing else tells the ranges
// of services, and if its answer can. It is not where ServiceCIDR is in its final version: the answer to a dry run is
// then one of the ranges, at random.
func AskService(f Facts, s Spec) bool {
	if len(f.ServiceCIDRs) > 0 || f.ServiceCIDRAPI {
		return false
	}
	l := newLearner(f, s)
	return s.ExternalAPIServer || len(l.flags()) == 0
}

// services are the ranges of services: those of the API, of flags, or of the answer, whichever is the first that knows.
func (l *learner) services() []Learned {
	out := l.serviceCIDRs()
	if len(out) == 0 && !l.spec.ExternalAPIServer {
		out = l.flags()
		l.agree(out)
	}
	if len(out) == 0 {
		out = l.answers()
	}
	out = distinct(out)
	switch {
	case len(out) > mostServices:
		l.problems.add(ServiceRangesUnknown, "", "the cluster has %d ranges of services, and at most %d can be linked",
			len(out), mostServices)
		return nil
	case len(out) == 0:
		l.problems.add(ServiceRangesUnknown, "", "%s", l.whyNoServices())
	}
	return out
}

func (l *learner) serviceCIDRs() (out []Learned) {
	for _, o := range l.facts.ServiceCIDRs {
		from := "ServiceCIDR " + shown(o.Metadata.Name)
		if o.Metadata.Deleted != "" {
			from += ", which is being deleted" // it stays as long as services have its addresses
		}
		for _, p := range l.parse(from, o.Spec.CIDRs) {
			out = append(out, Learned{p, from})
		}
	}
	return out
}

// flags are the ranges that flags of API servers have. The default of the flag is not used: nobody means it.
func (l *learner) flags() (out []Learned) {
	for _, pod := range l.facts.APIServers {
		if pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed" {
			continue
		}
		from := "flag " + flagServices + " of " + shown(pod.Metadata.Name)
		for _, c := range pod.Spec.Containers {
			value, found := flagValue(slices.Concat(c.Command, c.Args), flagServices)
			if !found {
				continue
			}
			for _, p := range l.parse(from, split(value)) {
				out = append(out, Learned{p, from})
			}
		}
	}
	return out
}

// agree says that API servers have different flags, as they have while one is changed. Each one assigns addresses.
func (l *learner) agree(in []Learned) {
	by := map[string][]string{}
	for _, one := range in {
		by[one.From] = append(by[one.From], one.Prefix.String())
	}
	var first, other string
	for from, ranges := range by {
		slices.Sort(ranges)
		say := strings.Join(ranges, ",") + " (" + from + ")"
		if first == "" || say < first {
			first = say
		}
	}
	for from, ranges := range by {
		list := strings.Join(ranges, ",")
		say := list + " (" + from + ")"
		if !strings.HasPrefix(first, list+" ") && (other == "" || say < other) {
			other = say
		}
	}
	if other != "" {
		l.problems.add(ServiceRangesDisagree, "give all API servers the same ranges",
			"API servers have different ranges of services, and all are used: %s, %s", first, other)
	}
}

// answers are the ranges that refusals of invalid Services name.
func (l *learner) answers() (out []Learned) {
	for _, text := range l.facts.Answers {
		ranges, _ := parseAnswer(text)
		for _, p := range ranges {
			out = append(out, Learned{p, answerFrom})
		}
	}
	return out
}

// whyNoServices says why the ranges of services are not known.
func (l *learner) whyNoServices() string {
	var told []string
	for _, text := range l.facts.Answers {
		switch _, means := parseAnswer(text); means {
		case saysNothing:
			told = append(told, "the answer to an invalid Service does not name them")
		case another:
			told = append(told, "the answer to an invalid Service was: "+shown(text))
		}
	}
	why := "the API server has no ServiceCIDR"
	if l.denied(resourceServiceCIDRs) {
		why = "the reader may not list ServiceCIDRs"
	}
	switch {
	case l.spec.ExternalAPIServer:
		why += ", and its flags cannot be seen, as it runs outside of the cluster"
	case l.denied(resourcePods):
		why += ", and the reader may not list its pods"
	default:
		why += ", and no pod with the label component=kube-apiserver in kube-system has the flag " + flagServices
	}
	if l.denied(resourceServices) {
		told = append(told, "the reader may not ask with an invalid Service")
	}
	slices.Sort(told)
	return "the ranges of services are unknown: " + strings.Join(append([]string{why}, slices.Compact(told)...), "; ")
}

// The bounds of a command line.
const (
	mostArgs    = 1024
	mostArgText = 64 << 10
)

// flagValue finds the value of a flag in a command line: --flag=value, --flag value, or either within a script that a
// shell is given. The last one counts, as it does for the program.
func flagValue(args []string, flag string) (value string, found bool) {
	var words []string
	for _, arg := range args[:min(len(args), mostArgs)] {
		words = append(words, strings.Fields(arg[:min(len(arg), mostArgText)])...)
	}
	for i, word := range words {
		word = strings.Trim(word, `"'`)
		switch name, inline, has := strings.Cut(word, "="); {
		case name != flag:
		case has:
			value, found = strings.Trim(inline, `"'`), true
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			value, found = strings.Trim(words[i+1], `"'`), true
		}
	}
	return value, found
}
