// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Line is one rule of a chain: conditions, then actions. Its text is pairs of words, which
// ParseLine parses: the kernel stores it as the rule's comment.
type Line []Term

// Term is one condition or action of a line.
type Term struct {
	Key  Key
	Mask uint32 // for marks: the bits that are compared or set
	Not  bool
	Arg  string
}

// Key is what a term compares or does.
type Key string

// The conditions.
const (
	KeyMark   Key = "mark"   // the packet's mark: a number
	KeyConn   Key = "ctmark" // its connection's mark: a number
	KeyState  Key = "state"  // of its connection: comma-separated names
	KeyStatus Key = "status" // of its connection: dnat
	KeyWay    Key = "way"    // direction in its connection: original or reply
	KeyIn     Key = "in"     // incoming link
	KeyOut    Key = "out"    // outgoing link
	KeyFamily Key = "family" // 4 or 6
	KeySrc4   Key = "saddr4" // source: @set, address or range; implies the family
	KeySrc6   Key = "saddr6"
	KeyDst4   Key = "daddr4"
	KeyDst6   Key = "daddr6"
	KeyOwner  Key = "from"  // local: the source is an address of this machine
	KeyProto  Key = "proto" // number of the transport protocol
	KeyPort   Key = "dport" // destination: number or first-last, after KeyProto
	KeySyn    Key = "tcp"   // syn: SYN or SYN-ACK
	KeyIPsec  Key = "ipsec" // out: it is about to be encrypted
	// The packet is an ICMP error (unreachable, too big, time exceeded), and the one that it is about has such an
	// address: a range. It implies the family.
	KeyAboutSrc4 Key = "about-saddr4"
	KeyAboutSrc6 Key = "about-saddr6"
	KeyAboutDst4 Key = "about-daddr4"
	KeyAboutDst6 Key = "about-daddr6"
)

// The actions.
const (
	KeySetMark Key = "set-mark"
	KeySetConn Key = "set-ctmark"
	KeyMSS     Key = "mss"   // lowers the segment size to the number, after KeySyn
	KeyMap     Key = "map"   // keeps host bits of a destination and takes the rest of the range, after KeyDst
	KeyCount   Key = "count" // packets
	KeyJump    Key = "jump"
	KeyDo      Key = "do" // accept, drop, masquerade, return; keep: the source stays, whatever later chains say
	// KeyMoveSrc and KeyMoveDst keep the host bits of an address and take the rest of the range, after KeySrc or KeyDst.
	// Unlike KeyMap they keep no state: each packet is changed, in both directions.
	KeyMoveSrc Key = "move-saddr"
	KeyMoveDst Key = "move-daddr"
	// KeyMoveAboutSrc and KeyMoveAboutDst change the packet that an ICMP error is about, after AboutSrc or AboutDst.
	KeyMoveAboutSrc Key = "move-about-saddr"
	KeyMoveAboutDst Key = "move-about-daddr"
)

// keyUnknown is the key of a kernel rule that we did not write.
const keyUnknown Key = "unknown"

// Unknown is a kernel rule that is not ours: it equals no desired line.
func Unknown() Line { return Line{{Key: keyUnknown, Arg: "rule"}} }

func (t Term) String() string {
	var b strings.Builder
	b.WriteString(string(t.Key))
	if t.Mask != 0 {
		fmt.Fprintf(&b, "/%#x", t.Mask)
	}
	b.WriteByte(' ')
	if t.Not {
		b.WriteByte('!')
	}
	b.WriteString(t.Arg)
	return b.String()
}

func (l Line) String() string {
	texts := make([]string, len(l))
	for i, t := range l {
		texts[i] = t.String()
	}
	return strings.Join(texts, " ")
}

// ParseLine parses the text of String.
func ParseLine(text string) (Line, error) {
	words := strings.Fields(text)
	if len(words)%2 != 0 || len(words) == 0 {
		return nil, fmt.Errorf("%q is not a line of a chain: pairs of words are expected", text)
	}
	var out Line
	for i := 0; i < len(words); i += 2 {
		t := Term{Arg: words[i+1]}
		key, mask, masked := strings.Cut(words[i], "/")
		if masked {
			n, err := strconv.ParseUint(mask, 0, 32)
			if err != nil || n == 0 {
				return nil, fmt.Errorf("%q has the mask %q", text, mask)
			}
			t.Mask = uint32(n)
		}
		t.Key = Key(key)
		t.Arg, t.Not = strings.CutPrefix(t.Arg, "!")
		out = append(out, t)
	}
	return out, nil
}

// If is a condition.
func If(k Key, arg string) Term { return Term{Key: k, Arg: arg} }

// IfNot is a negated condition.
func IfNot(k Key, arg string) Term { return Term{Key: k, Not: true, Arg: arg} }

// Bits is a condition or action on some bits of a mark.
func Bits(k Key, value, mask uint32) Term {
	return Term{Key: k, Mask: mask, Arg: fmt.Sprintf("%#x", value)}
}

// Src is the key of a source address.
func (f Family) Src() Key { return Key("saddr" + strconv.Itoa(int(f))) }

// Dst is the key of a destination address.
func (f Family) Dst() Key { return Key("daddr" + strconv.Itoa(int(f))) }

// AboutSrc is the key of the source of the packet that an ICMP error is about.
func (f Family) AboutSrc() Key { return "about-" + f.Src() }

// AboutDst is the key of the destination of the packet that an ICMP error is about.
func (f Family) AboutDst() Key { return "about-" + f.Dst() }

// Named is a condition: the value is in a set.
func Named(k Key, set string) Term { return Term{Key: k, Arg: "@" + set} }

// NotNamed is the negation of Named.
func NotNamed(k Key, set string) Term { return Term{Key: k, Not: true, Arg: "@" + set} }

// Within is a condition: the value is in a prefix.
func Within(k Key, p netip.Prefix) Term { return Term{Key: k, Arg: p.String()} }

// Do ends a line with a verdict.
func Do(verdict string) Term { return Term{Key: KeyDo, Arg: verdict} }

// Count counts the packets that reach it.
func Count() Term { return Term{Key: KeyCount, Arg: "packets"} }
