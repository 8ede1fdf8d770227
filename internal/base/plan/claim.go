// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"strconv"
)

// Claim says in a table of nftables whose it is, and what that mesh uses beside it: of
// routes, rules and links nobody can say so. Another mesh on the machine reads it.
type Claim struct {
	Filter string // the table that bears it
	Owner  string // of OwnerDigits hexadecimal digits; empty: nobody says whose the table is
	Table  int    // of routes
	Link   string
}

// OwnerDigits is how long the name of an owner is: kernels before 4.14 take no longer name of
// a chain than 31 characters.
const OwnerDigits = 12

func ownerChain() *regexp.Regexp {
	return regexp.MustCompile(`^owner-([0-9a-f]{` + strconv.Itoa(OwnerDigits) + `})-([0-9]{1,10})$`)
}

// Chain is the claim as a chain that nothing jumps to.
func (c Claim) Chain() Chain {
	return Chain{Name: "owner-" + c.Owner + "-" + itoa(c.Table), Lines: []Line{{If(KeyIn, c.Link), Do("return")}}}
}

// ClaimOf reads the claim of a chain, if it is one. Without its line the link is empty.
func ClaimOf(c Chain) (claim Claim, is bool) {
	parts := ownerChain().FindStringSubmatch(c.Name)
	if parts == nil || c.Hook != "" {
		return Claim{}, false
	}
	claim.Owner = parts[1]
	claim.Table, _ = strconv.Atoi(parts[2]) // digits alone, and few
	if len(c.Lines) == 1 && len(c.Lines[0]) == 2 && c.Lines[0][0].Key == KeyIn {
		claim.Link = c.Lines[0][0].Arg
	}
	return claim, true
}

// Refusing is the metric of the unreachable routes of the mesh that has a table of routes:
// above all that others choose (FRRouting takes its upper byte for the distance 255), and one
// of its own, so that those in the main table can be told from another mesh's.
func Refusing(table int) uint32 {
	const usual, of = 8192, 180 // as in the kernel's documentation of VRF, for the usual table
	return 255<<24 | uint32(usual+table-of)&(1<<24-1)
}
