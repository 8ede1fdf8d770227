// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func TestTargetsThatAreRead(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an address":                       {"10.0.0.1:443", "10.0.0.1:443"},
		"an IPv6 address":                  {"[fd00::1]:443", "[fd00::1]:443"},
		"an IPv6 address in a longer form": {"[FD00:0:0::0001]:443", "[fd00::1]:443"},
		"a mapped address becomes IPv4":    {"[::ffff:10.0.0.1]:443", "10.0.0.1:443"},
		"a mapped address in hexadecimal":  {"[::ffff:a00:1]:443", "10.0.0.1:443"},
		"an IPv4 address in brackets":      {"[10.0.0.1]:443", "10.0.0.1:443"},
		"a name":                           {"db.example.com:5432", "db.example.com:5432"},
		"a name in mixed case":             {"Db.EXAMPLE.com:5432", "db.example.com:5432"},
		"a name with a final dot":          {"db.example.com.:5432", "db.example.com:5432"},
		"a name of one label":              {"kubernetes:443", "kubernetes:443"},
		"a name with underscores":          {"_a._b.example:1", "_a._b.example:1"},
		"a name that begins with digits":   {"10-0-0-1.pod.cluster.local:80", "10-0-0-1.pod.cluster.local:80"},
		"a name that looks like a number":  {"0xg:80", "0xg:80"},
		"a name in its xn-- form":          {"XN--MLLER-KVA.example:80", "xn--mller-kva.example:80"},
		"the first port":                   {"a:1", "a:1"},
		"the last port":                    {"a:65535", "a:65535"},
		"a label of 63 characters":         {strings.Repeat("a", 63) + ":1", strings.Repeat("a", 63) + ":1"},
		"a name of 253 characters":         {strings.Repeat("a.", 126) + "a:65535", strings.Repeat("a.", 126) + "a:65535"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := policy.ParseTarget(c.text)
			if err != nil || got.String() != c.want {
				t.Errorf("%q was read as %q, %v; want %q", c.text, got, err, c.want)
			}
			if (got.Name != "") == got.Addr.IsValid() {
				t.Errorf("%+v is not either a name or an address", got)
			}
		})
	}
}

func TestTargetsThatAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                                 "",
		"no port":                                 "example.com",
		"an empty port":                           "example.com:",
		"port 0":                                  "example.com:0",
		"port 65536":                              "example.com:65536",
		"a port that overflows":                   "example.com:18446744073709551617",
		"a negative port":                         "example.com:-1",
		"a port with a sign":                      "example.com:+80",
		"a port with a leading zero":              "example.com:080",
		"a port in hexadecimal":                   "example.com:0x50",
		"a port by name":                          "example.com:https",
		"a port with a space":                     "example.com: 80",
		"a port in other digits":                  "example.com:\u0668\u0660",
		"no host":                                 ":80",
		"a dot alone":                             ".:80",
		"two final dots":                          "example.com..:80",
		"an empty label":                          "a..b:80",
		"a dot in front":                          ".a:80",
		"a hyphen in front of a label":            "a.-b:80",
		"a hyphen at the end of a label":          "a-.b:80",
		"a label of 64 characters":                strings.Repeat("a", 64) + ":80",
		"a name of 254 characters":                strings.Repeat("a.", 126) + "aa:80",
		"more than the whole may have":            strings.Repeat("a", limit.AuthorityLength) + ":80",
		"IPv6 without brackets":                   "fd00::1:443",
		"a bracket that is not closed":            "[fd00::1:443",
		"brackets with nothing in them":           "[]:443",
		"a zone":                                  "[fe80::1%eth0]:443",
		"a zone of a mapped address":              "[::ffff:10.0.0.1%eth0]:443",
		"a user":                                  "user@example.com:443",
		"a path":                                  "example.com:443/x",
		"a scheme":                                "http://example.com:443",
		"an escape":                               "exa%6dple.com:443",
		"a space":                                 "exam ple.com:443",
		"a line end":                              "example.com\r\n:443",
		"a NUL":                                   "example.com\x00:443",
		"bytes that are no UTF-8":                 "a\xff:443",
		"an internationalised name":               "müller.example:443",
		"the Kelvin sign, which lowers to k":      "\u212aubernetes:443",
		"the dotted capital I, which lowers to i": "\u0130p.example:443",
		"a full-width name":                       "\uff45xample.com:443",
		"an ideographic full stop":                "example\u3002com:443",
		"loopback with a part left out":           "127.1:80",
		"loopback in hexadecimal":                 "0x7f.1:80",
		"loopback in one hexadecimal number":      "0x7f000001:80",
		"loopback in upper-case hexadecimal":      "0X7F.0.0.1:80",
		"loopback as one number":                  "2130706433:80",
		"loopback in octal":                       "0177.0.0.1:80",
		"loopback with leading zeros":             "127.0.0.01:80",
		"loopback with a final dot":               "127.0.0.1.:80",
		"an address of five parts":                "127.0.0.1.1:80",
		"an address with a part too large":        "127.0.0.256:80",
		"an empty hexadecimal part":               "a.0x:80",
		"a number beyond 64 bits":                 "99999999999999999999999:80",
		"a name with a number at its end":         "example.123:80",
		"zero":                                    "0:80",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := policy.ParseTarget(text); err == nil || got != (policy.Target{}) {
				t.Errorf("%q was read as %+v, %v", text, got, err)
			}
		})
	}
}

// TestParseTargetQuotesNoPassword: its errors go to logs and callers.
func TestParseTargetQuotesNoPassword(t *testing.T) {
	for _, text := range []string{"user:S3CR3T@10.0.0.1:80", "S3CR3T@db:80", "https://user:S3CR3T@db/", "user:S3CR3T@db:0", "user:S3CR3T@1:2:3"} {
		if _, err := policy.ParseTarget(text); err == nil || strings.Contains(err.Error(), "S3CR3T") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"10.0.0.1:443", "[::ffff:a00:1]:1", "Db.example.com.:80", "0x7f.1:80", "[fe80::1%a]:1", "\u212a:1", "a:080"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		target, err := policy.ParseTarget(text)
		if err != nil {
			return
		}
		again, err := policy.ParseTarget(target.String())
		if err != nil || again != target {
			t.Errorf("%q became %q, which is read as %+v, %v", text, target, again, err)
		}
		if target.Port == 0 || (target.Name != "") == target.Addr.IsValid() || target.Addr.Is4In6() || target.Addr.Zone() != "" {
			t.Errorf("%q was read as %+v", text, target)
		}
		for _, c := range target.Name {
			if c >= 0x80 || c >= 'A' && c <= 'Z' {
				t.Errorf("%q left %q in the name", text, c)
			}
		}
	})
}
