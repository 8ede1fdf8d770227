// SPDX-License-Identifier: Apache-2.0

// Package wireguard decides about the WireGuard network between the clusters of a seed and its endpoints: which
// clusters are on, which address of the seed's range each one has, what may be imported from another hub, and what is
// in the files of both sides. It makes no keys, writes no files, and does not know how packets travel.
package wireguard
