// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
)

// Partial is a destination of a rule that takes in some names or ports of a way and not others: no list of sources for
// the whole way says that.
type Partial struct {
	Policy int // the place of its policy in the arguments of NewEdgeRules
	Rule   string
	Problem
}

// Partials finds them. An empty name of the way is any name, and one that begins with * any with that end; port 0 is
// any port. Of such a rule Sources lists what it denies, for the whole way, and nothing that it allows.
func (e *EdgeRules) Partials(w EdgeWay) (out []Partial) {
	for i, p := range e.policies {
		if p == nil {
			continue
		}
		for k, r := range p.rules {
			if !r.concerns(w) {
				continue
			}
			share, n := r.reaches(w)
			if share != partOf {
				continue
			}
			field := "allow"
			if r.deny {
				field = "deny"
			}
			out = append(out, Partial{i, r.name, Problem{Index: k, Path: fmt.Sprintf("rules[%d].%s[%d]", k, field, n),
				Message: fmt.Sprintf("rule %q is about %q, a part of what one list of sources is for: write \"*\" or all of it",
					r.name, r.written.Destination[n])}})
		}
	}
	return out
}

// share is how much of a way a destination takes in.
type share uint8

const (
	noneOf share = iota
	partOf
	allOf
)

// concerns reports whether a rule is about the flow and cluster of a way.
func (r *rule) concerns(w EdgeWay) bool {
	return r.edge != 0 && r.inFlow(w.Flow) && r.cluster.match(w.Cluster)
}

// reaches returns the largest share of a way that one of a rule's destinations has, and which one.
func (r *rule) reaches(w EdgeWay) (most share, at int) {
	for i, text := range r.written.Destination {
		d, err := parseDestination(text)
		if err != nil {
			continue // refused when it was compiled
		}
		if s := min(d.names(w.Name), d.ports.share(w.Port)); s > most {
			most, at = s, i
		}
	}
	return most, at
}

// names is the share of the names of a way.
func (d destination) names(name string) share {
	end, many := strings.CutPrefix(name, "*")
	switch suffix := strings.HasPrefix(d.name, "."); {
	case d.any, d.name == name && name != "", suffix && strings.HasSuffix(name, d.name) && name != d.name:
		return allOf
	case many && strings.HasSuffix(d.name, end) && (suffix || d.name != end), name == "" && d.name != "":
		return partOf
	}
	return noneOf
}

// share is that of the ports of a way.
func (ps ports) share(port uint16) share {
	switch {
	case len(ps) == 0 || port != 0 && ps.match(port):
		return allOf
	case port == 0:
		return partOf
	}
	return noneOf
}
