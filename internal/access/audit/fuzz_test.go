// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
)

// FuzzReader reads anything: every line is a record or a broken one with its
// place, and a record that is read can be written and read again as the same.
func FuzzReader(f *testing.F) {
	f.Add([]byte(fullLine))
	f.Add([]byte(fullLine + fullLine[:40] + "\n" + fullLine))
	f.Add([]byte(fullLine[:len(fullLine)-2]))
	f.Add([]byte(`{"v":1,"time":"2026-01-01T00:00:00Z","kind":"dial","caller":"` + "\xff\x80\u202e" + `"}` + "\n"))
	f.Add([]byte("\n\n{}\n{\"v\":2}\n\x00\xff"))
	f.Add([]byte(`{"v":1,"time":"9999-12-31T23:59:59-23:59","kind":"dial"}` + "\n"))
	f.Add([]byte(`{"v":1,"time":"2026-01-01T00:00:00Z","kind":"lost","count":-1,"durationMillis":1e300,"metadata":{"token":"x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader("f", bytes.NewReader(data))
		lines, last := bytes.Count(data, []byte("\n"))+1, 0
		for range lines + 1 {
			rec, err := r.Next()
			var bad *Broken
			switch {
			case err == io.EOF:
				return
			case errors.As(err, &bad):
				if bad.Line <= last || bad.Line > lines || bad.Why == "" || bad.Torn && bad.Line != lines {
					t.Fatalf("line %d of %d after %d: %+v", bad.Line, lines, last, bad)
				}
				last = bad.Line
			case err != nil:
				t.Fatal(err)
			default:
				line := Append(nil, rec)
				again, err := decode(line)
				if err != nil || !bytes.Equal(Append(nil, again), line) || len(line) > auditLine {
					t.Fatalf("%q is written as %q: %v", data, line, err)
				}
			}
		}
		t.Fatal("the reading has no end")
	})
}

// FuzzParseTarget reads a destination to look for: what is accepted finds itself
// where a record holds it in its own spelling, and nothing is found of another port.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"", "10.0.0.1", "10.0.0.1:443", "[fd00::1]:443", "fd00::/8", "::ffff:10.0.0.1", "A.Example.", "a:1", ":1", "a/b", "[::1", "10.0.0.0/33"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		target, err := ParseTarget(s)
		if err != nil {
			if target != (Target{}) {
				t.Errorf("%q: %v and %v", s, target, err)
			}
			return
		}
		if s == "" {
			return
		}
		found := s
		if p, err := netip.ParsePrefix(s); err == nil {
			found = p.Addr().String()
		}
		if !target.match(found) {
			t.Errorf("%q does not find %q", s, found)
		}
		if target.port != "" && target.match(net.JoinHostPort("10.0.0.1", target.port+"0")) {
			t.Errorf("%q finds another port", s)
		}
	})
}
