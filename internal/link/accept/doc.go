// SPDX-License-Identifier: Apache-2.0

// Package accept decides which clusters may be linked: no two of them may be reached by the same addresses, and none
// may have addresses itself by which others are reached. It knows what all clusters say at one moment, and what was
// accepted before; it writes nothing.
//
// A member writes the ranges of its cluster itself, so what it says anew never takes anything from a cluster that was
// accepted for it. Between two clusters that both have a range, or both ask for it, the older one wins.
package accept
