// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Kind says what a problem means.
type Kind string

// The kinds.
const (
	Refused Kind = "refused" // the range is not routed at all
	Overlap Kind = "overlap" // another member has it, or a part of it
	Self    Kind = "self"    // a member has this node's key
	Twice   Kind = "twice"   // two members have one key
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Refused, Overlap, Self, Twice} }

// Problem is a member or a range that does not count.
type Problem struct {
	Kind   Kind
	Member string       // id
	Node   string       // its name
	Range  netip.Prefix // not valid: the member as a whole
	Other  string       // id of the member that has it instead
	Why    string
}

func (p Problem) String() string {
	name := called(p.Node, p.Member)
	if !p.Range.IsValid() {
		return fmt.Sprintf("%s of %s: %s", p.Kind, name, p.Why)
	}
	return fmt.Sprintf("%s of %s: %s: %s", p.Kind, name, p.Range, p.Why)
}

// Fault is the problem as a coded failure.
func (p Problem) Fault() *fault.Fault {
	switch p.Kind {
	case Self, Twice:
		return fault.New(fault.CodeSelf, p.String()).
			Hint("give each machine its own state directory; on the copy remove wireguard.key and start it again")
	default:
		return fault.New(fault.CodeRange, p.String()).
			Hint("announce another range there, exclude it here, or see mesh.accept")
	}
}

func selfProblem(m *member.Facts) Problem {
	return Problem{Kind: Self, Member: m.ID, Node: m.Node, Why: "it holds this node's key"}
}

func keyProblem(m, holder *member.Facts) Problem {
	return Problem{Kind: Twice, Member: m.ID, Node: m.Node, Other: holder.ID,
		Why: called(holder.Node, holder.ID) + " has the same key, and counts"}
}

// called is a member in a text: people know it by its name, and only the id is its own.
func called(node, id string) string {
	if node == "" {
		return "member " + id
	}
	return node + " (" + id + ")"
}

func compareProblems(a, b Problem) int {
	return cmp.Or(strings.Compare(a.Member, b.Member), strings.Compare(string(a.Kind), string(b.Kind)),
		a.Range.Compare(b.Range),
		strings.Compare(a.Other, b.Other), strings.Compare(a.Why, b.Why))
}
