// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

func compile(t testing.TB, rules ...string) *policy.Policy {
	t.Helper()
	p, problems := policy.CompileAllow(rules)
	if len(problems) > 0 {
		t.Fatalf("%q: %v", rules, problems)
	}
	return p
}

func TestRulesThatAreAccepted(t *testing.T) {
	for name, rule := range map[string]string{
		"a range":                                     "10.0.0.0/8",
		"a range with a port":                         "10.0.0.0/8:443",
		"a range with ports":                          "10.0.0.0/8:80,443,8000-8999",
		"everything of IPv4":                          "0.0.0.0/0",
		"everything of IPv6":                          "::/0",
		"an IPv6 range":                               "fd00::/8",
		"an IPv6 range in brackets":                   "[fd00::/8]",
		"an IPv6 range with a port":                   "[fd00::/8]:443",
		"an address":                                  "10.0.0.1",
		"an address with a port":                      "10.0.0.1:443",
		"an IPv4 range in brackets":                   "[10.0.0.0/8]:443",
		"an IPv6 address":                             "fd00::1",
		"an IPv6 address with a port":                 "[fd00::1]:443",
		"an IPv4-mapped address":                      "::ffff:10.0.0.1",
		"the first and the last port":                 "10.0.0.1:1-65535",
		"a range of one port":                         "10.0.0.1:80-80",
		"a name":                                      "db.example.com",
		"a name with a port":                          "db.example.com:5432",
		"a name of one label":                         "kubernetes:443",
		"a name with a final dot":                     "db.example.com.",
		"a name in upper case":                        "DB.Example.COM",
		"a name with an underscore":                   "_sip._tcp.example.com",
		"an internationalised name in its ASCII form": "xn--mller-kva.example",
		"a wildcard":                                  "*.svc.cluster.local",
		"a wildcard with ports":                       "*.svc.cluster.local:443,8443",
	} {
		t.Run(name, func(t *testing.T) {
			p := compile(t, rule)
			if got := p.Texts(); len(got) != 1 || got[0] != rule {
				t.Errorf("the rule is shown as %q", got)
			}
		})
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ rule, says string }{
		"nothing":                              {"", "neither"},
		"white space":                          {" ", "neither"},
		"white space before an address":        {" 10.0.0.1", "neither"},
		"host bits":                            {"10.0.0.1/8", "did you mean 10.0.0.0/8"},
		"host bits of IPv6":                    {"fd00::1/8", "did you mean fd00::/8"},
		"a range that is too long":             {"10.0.0.0/33", "no CIDR"},
		"a range without a length":             {"10.0.0.0/", "no CIDR"},
		"a mask in dots":                       {"10.0.0.0/255.0.0.0", "no CIDR"},
		"a range of a name":                    {"example.com/8", "no CIDR"},
		"a mapped range":                       {"::ffff:10.0.0.0/104", "IPv4-mapped"},
		"all of the mapped range":              {"::ffff:0:0/96", "IPv4-mapped"},
		"a zone":                               {"fe80::1%eth0", "zone"},
		"a zone in a range":                    {"fe80::%eth0/10", "no CIDR"},
		"port 0":                               {"10.0.0.1:0", "no port"},
		"port 70000":                           {"10.0.0.1:70000", "no port"},
		"a port that overflows":                {"10.0.0.1:99999999999999999999", "no port"},
		"a negative port":                      {"10.0.0.1:-1", "no port"},
		"a port with a sign":                   {"10.0.0.1:+80", "no port"},
		"a port by name":                       {"10.0.0.1:https", "no port"},
		"ports reversed":                       {"10.0.0.1:90-80", "no port"},
		"a range of ports without its end":     {"10.0.0.1:80-", "no port"},
		"a range of ports without its begin":   {"10.0.0.1:-80", "no port"},
		"a range of ports to 65536":            {"10.0.0.1:80-65536", "no port"},
		"a list of ports with a hole":          {"10.0.0.1:80,,90", "no port"},
		"a list of ports with a final comma":   {"10.0.0.1:80,", "no port"},
		"no ports after the colon":             {"10.0.0.1:", "no ports"},
		"no ports after the colon of brackets": {"[fd00::/8]:", "no ports"},
		"IPv6 ports without brackets":          {"fd00::/8:443", "no CIDR"},
		"a bracket that is not closed":         {"[fd00::/8:443", "brackets"},
		"a bracket that is not opened":         {"fd00::/8]:443", "no CIDR"},
		"something behind the brackets":        {"[fd00::/8]443", "brackets"},
		"a star alone":                         {"*", "neither"},
		"a star and a dot":                     {"*.", "neither"},
		"a star within":                        {"a.*.example.com", "neither"},
		"a star that is part of a label":       {"*a.example.com", "neither"},
		"two stars":                            {"*.*.example.com", "neither"},
		"a star before an address":             {"*.10.0.0.1", "neither"},
		"a name with a space":                  {"a b", "neither"},
		"a URL":                                {"http://example.com", "no port"},
		"a name beyond ASCII":                  {"müller.example", "xn--"},
		"an odd form of an address":            {"127.1", "neither"},
		"an address with leading zeros":        {"010.0.0.1", "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			p, problems := policy.CompileAllow([]string{"10.9.0.0/16", c.rule})
			if len(problems) != 1 || problems[0].Path != "[1]" || !strings.Contains(problems[0].Message, c.says) {
				t.Errorf("%q: %+v, want one problem that says %q", c.rule, problems, c.says)
			}
			if len(p.Texts()) != 1 {
				t.Errorf("rules %q, want the good one alone", p.Texts())
			}
		})
	}
	if _, problems := policy.CompileAllow([]string{"x y", "10.0.0.0/8", ":"}); len(problems) != 2 || problems[0].Index != 0 || problems[1].Index != 2 {
		t.Errorf("not all problems are told, or not with their place: %+v", problems)
	}
}

func TestNamesAndPorts(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	for name, c := range map[string]struct {
		rule, ask string
		port      uint16
		allow     bool
	}{
		"a name matches itself":                       {"db.example.com", "db.example.com", 1, true},
		"a name in another case and with a final dot": {"DB.example.com.", "db.example.com", 1, true},
		"a name does not match another":               {"db.example.com", "xdb.example.com", 1, false},
		"a name does not match what is below it":      {"example.com", "db.example.com", 1, false},
		"a name does not match an address asked for":  {"db.example.com", "", 1, false},
		"a wildcard matches one label":                {"*.example.com", "a.example.com", 1, true},
		"a wildcard matches several labels":           {"*.example.com", "a.b.example.com", 1, true},
		"a wildcard does not match its apex":          {"*.example.com", "example.com", 1, false},
		"a wildcard does not match within a label":    {"*.example.com", "badexample.com", 1, false},
		"a wildcard does not match another suffix":    {"*.example.com", "a.example.com.evil.net", 1, false},
		"a wildcard does not match an address":        {"*.example.com", "", 1, false},
		"a range matches whatever name was asked":     {"10.0.0.0/8", "any.example", 1, true},
		"a port that is listed":                       {"10.0.0.0/8:80,443", "", 443, true},
		"a port that is not listed":                   {"10.0.0.0/8:80,443", "", 444, false},
		"the first port of a range":                   {"10.0.0.0/8:8000-8999", "", 8000, true},
		"the last port of a range":                    {"10.0.0.0/8:8000-8999", "", 8999, true},
		"the port before a range":                     {"10.0.0.0/8:8000-8999", "", 7999, false},
		"the port after a range":                      {"10.0.0.0/8:8000-8999", "", 9000, false},
		"the ports of a name":                         {"a.example:80", "a.example", 81, false},
		"the ports of a wildcard":                     {"*.example:80", "a.example", 80, true},
		"another address":                             {"10.0.0.2", "", 1, false},
		"the address itself":                          {"10.0.0.1", "", 1, true},
		"the address in its mapped form":              {"::ffff:10.0.0.1", "", 1, true},
		"everything of IPv6 does not include IPv4":    {"::/0", "", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := policy.Decide(policy.Request{Name: c.ask, Addr: addr, Port: c.port}, compile(t, c.rule))
			if v.Allow != c.allow || v.Why() == "" || (v.Rule != "") != c.allow {
				t.Errorf("%+v, want allow=%v with a reason", v, c.allow)
			}
		})
	}
	t.Run("the verdict names the rule that allowed", func(t *testing.T) {
		p := compile(t, "192.168.0.0/16", "10.0.0.0/8:1", "10.0.0.0/8")
		if v := policy.Decide(policy.Request{Addr: addr, Port: 2}, p); v.Rule != "10.0.0.0/8" || !slices.Contains(p.Texts(), v.Rule) {
			t.Errorf("%+v", v)
		}
	})
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8:443", "[fd00::/8]:1-2,3", "*.a.b:80", "::ffff:1.2.3.4", "fe80::1%eth0", "1.2.3.4:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rule string) {
		p, problems := policy.CompileAllow([]string{rule})
		if len(problems)+len(p.Texts()) != 1 {
			t.Fatalf("%q: %v and %q", rule, problems, p.Texts())
		}
		for _, q := range problems {
			if q.Message == "" {
				t.Errorf("%q is refused without a reason", rule)
			}
		}
	})
}
