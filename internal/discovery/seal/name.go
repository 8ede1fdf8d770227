// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// ClusterID names a cluster of the native protocol: a hash of its verifier.
type ClusterID [size]byte

// MemberID names a member: a hash of its key.
type MemberID [size]byte

// clusterPrefix begins the text of a ClusterID; 1 is the version of its making.
const clusterPrefix = "t1-"

// ClusterOf is the id of the cluster that a verifier's public key stands for.
func ClusterOf(verifier ed25519.PublicKey) ClusterID {
	return ClusterID(digest("tombolo discovery cluster 1", verifier))
}

// MemberOf is the id of the member with a public key.
func MemberOf(member ed25519.PublicKey) MemberID {
	return MemberID(digest("tombolo discovery member 1", member))
}

// message is what is hashed, signed or associated: no two purposes have a message
// in common, for the label ends with a zero byte, and what follows has a fixed
// length each.
func message(label string, parts ...[]byte) []byte {
	out := append([]byte(label), 0)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func digest(label string, parts ...[]byte) [size]byte { return sha256.Sum256(message(label, parts...)) }

// ParseClusterID reads the one spelling that String writes.
func ParseClusterID(text string) (ClusterID, error) {
	rest, ok := strings.CutPrefix(text, clusterPrefix)
	if !ok {
		return ClusterID{}, fmt.Errorf("the cluster id does not begin with %q", clusterPrefix)
	}
	id, err := parseName("cluster id", rest)
	return ClusterID(id), err
}

// ParseMemberID reads the one spelling that String writes.
func ParseMemberID(text string) (MemberID, error) {
	id, err := parseName("member id", text)
	return MemberID(id), err
}

func (id ClusterID) String() string { return clusterPrefix + spelling().EncodeToString(id[:]) }
func (id MemberID) String() string  { return spelling().EncodeToString(id[:]) }

// IsZero reports whether id names nothing.
func (id ClusterID) IsZero() bool { return id == ClusterID{} }

// IsZero reports whether id names nothing.
func (id MemberID) IsZero() bool { return id == MemberID{} }

// MarshalText makes the id readable in logs and JSON.
func (id ClusterID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// MarshalText makes the id readable in logs and JSON.
func (id MemberID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseClusterID.
func (id *ClusterID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseClusterID(string(text))
	return err
}

// UnmarshalText is ParseMemberID.
func (id *MemberID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseMemberID(string(text))
	return err
}

// spelling is base32hex (RFC 4648 section 7) in lower case, without padding: it
// sorts as the bytes do, and may stand in a file name.
func spelling() *base32.Encoding {
	return base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)
}

func parseName(what, text string) (id [size]byte, err error) {
	e := spelling()
	if want := e.EncodedLen(size); len(text) != want {
		return id, fmt.Errorf("the %s has %d characters, not %d", what, len(text), want)
	}
	raw, err := e.DecodeString(text)
	// The decoder passes over line ends and takes bits beyond the last byte.
	if err != nil || len(raw) != size || e.EncodeToString(raw) != text {
		return id, fmt.Errorf("the %s is not base32hex of %d bytes in lower case", what, size)
	}
	return [size]byte(raw), nil
}
