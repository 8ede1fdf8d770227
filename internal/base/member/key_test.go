// SPDX-License-Identifier: Apache-2.0

package member_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

func TestKeyHasOneSpelling(t *testing.T) {
	const text = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
	k, err := member.ParseKey(text)
	if err != nil || k.String() != text || k.Short() != "AQID…eHyA" || k.IsZero() {
		t.Fatalf("%v, short %s, %v", k, k.Short(), err)
	}
	var again member.Key
	if out, err := k.MarshalText(); err != nil || again.UnmarshalText(out) != nil || again != k {
		t.Errorf("%s becomes %v, %v", out, again, err)
	}
	if again.UnmarshalText(nil) != nil || !again.IsZero() || again.String() != "" {
		t.Errorf("no text becomes %v", again)
	}
	for name, bad := range map[string]string{
		"empty": "", "zero": strings.Repeat("A", 43) + "=", "a line end": text[:43] + "\n=", "stray bits": strings.Repeat("A", 42) + "B=",
		"too long": text + "AAAA", "hexadecimal": strings.Repeat("ab", 32), "URL spelling": strings.Repeat("_", 43) + "=",
	} {
		if k, err := member.ParseKey(bad); err == nil {
			t.Errorf("%s: %q is read as %v", name, bad, k)
		}
	}
}
