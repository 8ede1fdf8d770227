// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math/bits"
)

// Digest identifies the content of policies. Digests add up: that of several policies does not
// depend on their order, and a change of one costs a subtraction and an addition, however many
// there are. It distinguishes versions of an honest author; it is not collision-resistant.
type Digest [2]uint64

// Plus is the digest of both.
func (d Digest) Plus(o Digest) Digest {
	low, carry := bits.Add64(d[1], o[1], 0)
	high, _ := bits.Add64(d[0], o[0], carry)
	return Digest{high, low}
}

// Minus removes o again.
func (d Digest) Minus(o Digest) Digest {
	low, borrow := bits.Sub64(d[1], o[1], 0)
	high, _ := bits.Sub64(d[0], o[0], borrow)
	return Digest{high, low}
}

// String returns 12 hex digits, for logs.
func (d Digest) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], d[0])
	return hex.EncodeToString(b[:6])
}

// Digest covers the rules and lists as they were written, whatever their file.
func (p *Policy) Digest() Digest {
	if p == nil {
		return Digest{}
	}
	return p.digest
}

// digesting hashes values so that different sequences have different encodings.
type digesting struct {
	hash hash.Hash
	room [8]byte
}

func (d *digesting) number(n uint64) {
	binary.BigEndian.PutUint64(d.room[:], n)
	d.hash.Write(d.room[:])
}

func (d *digesting) text(s string) {
	d.number(uint64(len(s)))
	d.hash.Write([]byte(s))
}

// texts distinguishes an omitted list from an empty one.
func (d *digesting) texts(list []string) {
	if list == nil {
		d.number(^uint64(0))
		return
	}
	d.number(uint64(len(list)))
	for _, s := range list {
		d.text(s)
	}
}

func (d *digesting) rule(r Rule) {
	d.text(r.Name)
	d.text(r.Comment)
	d.text(r.Group)
	d.number(map[bool]uint64{true: 1}[r.Deny])
	for _, list := range [][]string{r.Cluster, r.Caller, r.Egress, r.Flow, r.Source, r.Destination} {
		d.texts(list)
	}
	if d.number(uint64(len(r.UID))); r.UID == nil {
		d.number(^uint64(0))
	}
	for _, u := range r.UID {
		d.number(uint64(u))
	}
}

func (d *digesting) sum() Digest {
	s := d.hash.Sum(nil)
	return Digest{binary.BigEndian.Uint64(s), binary.BigEndian.Uint64(s[8:])}
}

func digestOf(rules []Rule, lists []List) Digest {
	d := digesting{hash: sha256.New()}
	d.number(uint64(len(rules)))
	for _, r := range rules {
		d.rule(r)
	}
	for _, l := range lists {
		d.text(l.Name)
		d.texts(l.Ranges)
	}
	return d.sum()
}
