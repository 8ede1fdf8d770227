// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"strconv"
)

// Claim marks an nftables table with its owner, and with the other kernel objects of that
// mesh: routes, rules and links have no room for such a mark. Another mesh on the machine
// reads it.
type Claim struct {
	Filter string // the marked table
	Owner  string // OwnerDigits hexadecimal digits; empty: unknown
	Table  int    // of routes
	Link   string
}

// OwnerDigits is the length of an owner's name: before kernel 4.14 the name of a chain has at
// most 31 characters.
const OwnerDigits = 12

func ownerChain() *regexp.Regexp {
	return regexp.MustCompile(`^owner-([0-9a-f]{` + strconv.Itoa(OwnerDigits) + `})-([0-9]{1,10})$`)
}

// Chain encodes the claim as a chain that nothing jumps to.
func (c Claim) Chain() Chain {
	return Chain{Name: "owner-" + c.Owner + "-" + itoa(c.Table), Lines: []Line{{If(KeyIn, c.Link), Do("return")}}}
}

// ClaimOf decodes the claim of a chain, if it is one. Without its line the link is empty.
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

// Refusing is the metric of the unreachable routes of the mesh with a given routing table:
// above those that other programs choose (FRRouting reads its upper byte as the distance 255),
// and different for each mesh, so that the routes of two meshes in the main table differ.
func Refusing(table int) uint32 {
	const usual, of = 8192, 180 // as in the kernel's documentation of VRF, for the usual table
	return 255<<24 | uint32(usual+table-of)&(1<<24-1)
}
