// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Line is one rule of a chain: what must hold, then what is done. Its text is pairs
// of words, and ParseLine reads it: the kernel keeps it beside the rule.
type Line []Term

// Term is one condition or act of a line.
type Term struct {
	Key  Key
	Mask uint32 // of marks: the bits that are looked at or set
	Not  bool
	Arg  string
}

// Key says what a term looks at or does.
type Key string

// The conditions.
const (
	KeyMark   Key = "mark"   // the packet's mark: a number
	KeyConn   Key = "ctmark" // its connection's mark: a number
	KeyState  Key = "state"  // of its connection: names with commas between
	KeyStatus Key = "status" // of its connection: dnat
	KeyWay    Key = "way"    // within its connection: original, as who began it sends, or reply
	KeyIn     Key = "in"     // link by which it came
	KeyOut    Key = "out"    // link by which it leaves
	KeyFamily Key = "family" // 4 or 6
	KeySrc4   Key = "saddr4" // source: @set, address or range; implies the family
	KeySrc6   Key = "saddr6"
	KeyDst4   Key = "daddr4"
	KeyDst6   Key = "daddr6"
	KeyOwner  Key = "from"  // local: the source is an address of this machine
	KeyProto  Key = "proto" // number of the transport protocol
	KeyPort   Key = "dport" // destination: number or first-last, after KeyProto
	KeySyn    Key = "tcp"   // syn: it begins a connection, or answers that
)

// The acts.
const (
	KeySetMark Key = "set-mark"
	KeySetConn Key = "set-ctmark"
	KeyMSS     Key = "mss"   // lowers the segment size to the number, after KeySyn
	KeyCount   Key = "count" // packets
	KeyJump    Key = "jump"
	KeyDo      Key = "do" // accept, drop, masquerade, return
)

// keyUnknown stands for a rule in the kernel that we did not write.
const keyUnknown Key = "unknown"

// Unknown is a rule in the kernel that is not ours: it equals no line that is wanted.
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

// ParseLine reads what String wrote.
func ParseLine(text string) (Line, error) {
	words := strings.Fields(text)
	if len(words)%2 != 0 || len(words) == 0 {
		return nil, fmt.Errorf("%q is no line of a chain: pairs of words are expected", text)
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

// IfNot is its opposite.
func IfNot(k Key, arg string) Term { return Term{Key: k, Not: true, Arg: arg} }

// Bits is a condition or act on some bits of a mark.
func Bits(k Key, value, mask uint32) Term {
	return Term{Key: k, Mask: mask, Arg: fmt.Sprintf("%#x", value)}
}

// Src is the key of a source address.
func (f Family) Src() Key { return Key("saddr" + strconv.Itoa(int(f))) }

// Dst is the key of a destination address.
func (f Family) Dst() Key { return Key("daddr" + strconv.Itoa(int(f))) }

// Named is a condition on a set.
func Named(k Key, set string) Term { return Term{Key: k, Arg: "@" + set} }

// NotNamed is its opposite.
func NotNamed(k Key, set string) Term { return Term{Key: k, Not: true, Arg: "@" + set} }

// Within is a condition on a prefix.
func Within(k Key, p netip.Prefix) Term { return Term{Key: k, Arg: p.String()} }

// Do ends a line with a verdict.
func Do(verdict string) Term { return Term{Key: KeyDo, Arg: verdict} }

// Count counts the packets that come that far.
func Count() Term { return Term{Key: KeyCount, Arg: "packets"} }
