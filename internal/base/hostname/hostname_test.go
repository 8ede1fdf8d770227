// SPDX-License-Identifier: Apache-2.0

package hostname_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/hostname"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"api.example.org": "api.example.org", "API.Example.ORG.": "api.example.org", "a_b.c": "a_b.c", "c1": "c1",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
		"":                      "", ".": "", "a..b": "", "-a.b": "", "a-.b": "", "a b": "", "bücher.example": "", "a/b": "", "a:1": "",
		"127.0.0.1": "", "127.1": "", "x.0x7f": "", "::1": "", "a\x00b": "", "*.example.org": "",
		"\u212a.example":                               "", // KELVIN SIGN, which becomes k in lower case
		strings.Repeat("a", 64) + ".example":           "",
		strings.Repeat("a", 63) + ".example":           strings.Repeat("a", 63) + ".example",
		strings.Repeat("abcdefgh.", 28) + "x":          strings.Repeat("abcdefgh.", 28) + "x",
		strings.Repeat("abcdefgh.", 28) + "xx.example": "",
	} {
		got, err := hostname.Parse(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}
