// SPDX-License-Identifier: Apache-2.0

package member_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

func TestPinHasOneSpelling(t *testing.T) {
	const text = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA"
	p, err := member.ParsePin(text)
	if err != nil || p.String() != text || p.IsZero() {
		t.Fatalf("%v, %v", p, err)
	}
	var again member.Pin
	if out, err := p.MarshalText(); err != nil || again.UnmarshalText(out) != nil || again != p {
		t.Errorf("%s becomes %v, %v", out, again, err)
	}
	if again.UnmarshalText(nil) != nil || !again.IsZero() || again.String() != "" {
		t.Errorf("no text becomes %v", again)
	}
	for name, bad := range map[string]string{
		"empty": "", "zero": strings.Repeat("A", 43), "a line end": text[:42] + "\nA", "stray bits": strings.Repeat("A", 42) + "B",
		"a WireGuard key": text + "=", "too long": text + "AAAA", "URL spelling": strings.Repeat("_", 43),
	} {
		if p, err := member.ParsePin(bad); err == nil {
			t.Errorf("%s: %q is read as %v", name, bad, p)
		}
	}
}

func TestEnginesOfOneKind(t *testing.T) {
	for _, c := range []struct {
		a, b member.Engine
		same bool
	}{
		{"", member.WireGuard, true}, {"", "", true}, {member.IPsec, member.IPsec, true},
		{"", member.IPsec, false}, {member.WireGuard, member.IPsec, false}, {"", "other", false},
	} {
		if c.a.Same(c.b) != c.same || c.b.Same(c.a) != c.same {
			t.Errorf("%q and %q: %v", c.a, c.b, !c.same)
		}
	}
	if member.Engine("").String() != "wireguard" || member.IPsec.String() != "ipsec" {
		t.Error("an engine has another name")
	}
}
