// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestModulesAreInOrder: each comes once, behind what it needs; a circle and an unknown one are refused.
func TestModulesAreInOrder(t *testing.T) {
	needs := map[string][]string{
		"wireguard": {"udp-tunnel", "curve25519"}, "udp_tunnel": nil, "curve25519": nil, "veth": nil,
		"a": {"b"}, "b": {"a"},
	}
	look := func(name string) ([]string, error) {
		below, known := needs[name]
		if !known {
			return nil, fmt.Errorf("no module %s", name)
		}
		return below, nil
	}
	for _, c := range []struct {
		wanted, want []string
		refused      bool
	}{
		{[]string{"veth", "wireguard", "udp_tunnel"}, []string{"veth", "udp_tunnel", "curve25519", "wireguard"}, false},
		{nil, nil, false},
		{[]string{"a"}, nil, true},
		{[]string{"veth", "gone"}, nil, true},
	} {
		got, err := inOrder(c.wanted, look)
		if !slices.Equal(got, c.want) || (err != nil) != c.refused {
			t.Errorf("%v: %v, %v, want %v", c.wanted, got, err, c.want)
		}
	}
}

func TestModinfoIsRead(t *testing.T) {
	for _, c := range []struct {
		section        string
		needs, aliases []string
	}{
		{"", nil, nil},
		{"license=GPL\x00depends=a,b-c\x00alias=x\x00alias=y=z\x00", []string{"a", "b-c"}, []string{"x", "y=z"}},
		{"depends=\x00", nil, nil},
	} {
		got := parseModinfo([]byte(c.section))
		if !slices.Equal(got.needs, c.needs) || !slices.Equal(got.aliases, c.aliases) {
			t.Errorf("%q: %+v", c.section, got)
		}
	}
	if _, err := readModinfo(strings.NewReader("no module")); err == nil {
		t.Error("a file that is no module is read")
	}
	within, err := builtIn(strings.NewReader("kernel/crypto/aes-generic.ko\nkernel/x.ko\n"))
	if err != nil || !within["aes_generic"] || !within["x"] || len(within) != 2 {
		t.Errorf("built in are %v, %v", within, err)
	}
}

// FuzzParseModinfo: whatever a section has, names have no separators in them.
func FuzzParseModinfo(f *testing.F) {
	f.Add([]byte("depends=a,b\x00alias=c\x00"))
	f.Fuzz(func(t *testing.T, section []byte) {
		m := parseModinfo(section)
		for _, name := range append(m.needs, m.aliases...) {
			if strings.Contains(name, "\x00") {
				t.Errorf("%q", name)
			}
		}
		for _, name := range m.needs {
			if name == "" || strings.Contains(name, ",") {
				t.Errorf("%q", m.needs)
			}
		}
	})
}

// TestAnInitramfsIsRead again, by the kernel's description of the form: what was put in is there,
// in folders that come before it.
func TestAnInitramfsIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	err := writeInitramfs(&archive, []entry{
		{name: "init", mode: 0o755, data: []byte("abc")},
		{name: "a/b/c", mode: 0o644, from: file},
		{name: "a/b/d", mode: 0o644},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"init 100755 abc", "a 40755 ", "a/b 40755 ", "a/b/c 100644 from a file", "a/b/d 100644 "}
	if got := unpacked(t, &archive); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := writeInitramfs(io.Discard, []entry{{name: "x", from: file + "-gone"}}); err == nil {
		t.Error("a file that does not exist is packed")
	}
}

func unpacked(t *testing.T, archive *bytes.Buffer) (out []string) {
	t.Helper()
	const head = 110
	round := func(n int) int { return (n + 3) / 4 * 4 }
	for archive.Len() > 0 {
		field := func(b []byte, i int) int {
			n, err := strconv.ParseInt(string(b[6+8*i:14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		b := archive.Bytes()
		mode, size, length := field(b, 1), field(b, 6), field(b, 11)
		name := string(b[head : head+length-1])
		data := round(head + length)
		if name == "TRAILER!!!" {
			return out
		}
		out = append(out, fmt.Sprintf("%s %o %s", name, mode, b[data:data+size]))
		archive.Next(data + round(size))
	}
	t.Fatal("it has no end")
	return nil
}
