// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

func TestNamesOfPorts(t *testing.T) {
	for name, good := range map[string]bool{
		"registry": true, "a": true, "a-1": true, strings.Repeat("a", 63): true, "": false, strings.Repeat("a", 64): false,
		"Registry": false, "1a": false, "-a": false, "a-": false, "a.b": false, "a_b": false, "ä": false, "a b": false, "*": false,
	} {
		if err := wire.CheckPort(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		if got, ok := wire.ParsePort(wire.PortAddress(name)); ok != good || good && got != name {
			t.Errorf("%q: %q, %v", name, got, ok)
		}
	}
}

// FuzzParsePort: what is read as a port is what stands there, and CONNECT can carry it.
func FuzzParsePort(f *testing.F) {
	for _, s := range []string{
		"registry.port.tombolo:1", "registry.port.tombolo:01", "registry.port.tombolo.:1", "a.b.port.tombolo:1", ".port.tombolo:1",
		"REGISTRY.port.tombolo:1", "10.0.0.1:80", "registry.port.tombolo:1.port.tombolo:1", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, ok := wire.ParsePort(s)
		if !ok {
			return
		}
		if wire.PortAddress(name) != s || wire.CheckPort(name) != nil {
			t.Errorf("%q is read as %q", s, name)
		}
		if p, err := policy.ParseTarget(s); err != nil || p.String() != s {
			t.Errorf("%q is read by CONNECT as %v, %v", s, p, err)
		}
	})
}
