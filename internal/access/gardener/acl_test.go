// SPDX-License-Identifier: Apache-2.0

package gardener_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func ranges(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`"10.%d.%d.0/24"`, i/256, i%256))
	}
	return strings.Join(out, ",")
}

// rule is a providerConfig that lacks nothing, with one of its fields replaced.
func rule(field, value string) string {
	fields := map[string]string{"action": `"ALLOW"`, "type": `"remote_ip"`, "cidrs": `["192.0.2.0/24"]`}
	fields[field] = value
	var out []string
	for _, name := range []string{"action", "type", "cidrs"} {
		if fields[name] != "" {
			out = append(out, fmt.Sprintf("%q: %s", name, fields[name]))
		}
	}
	return `{"rule": {` + strings.Join(out, ", ") + `}}`
}

// brief is a problem as tests compare it: path, cause, code.
func brief(list []gardener.Problem) (out []string) {
	for _, p := range list {
		text := fmt.Sprint(p.Path, " ", p.Cause, " ", p.Code)
		if p.Warning {
			text = "warning: " + text
		}
		out = append(out, text)
	}
	return out
}

const invalid = " access_list_invalid"

// TestReadACL: numbers are those of the behaviours that Gardener's extension asserts.
func TestReadACL(t *testing.T) {
	const at = "spec.providerConfig"
	for name, c := range map[string]struct {
		raw  string
		want []string // problems
		deny bool
	}{
		"23: DENY by source_ip":             {raw: `{"rule":{"action":"DENY","type":"source_ip","cidrs":["0.0.0.0/0"]}}`, deny: true, want: []string{"warning: " + at + ".rule.cidrs[0] FieldValueInvalid" + invalid}},
		"24: no rule":                       {raw: `{}`, want: []string{at + ".rule FieldValueRequired" + invalid}},
		"24: a rule that is null":           {raw: `{"rule": null}`, want: []string{at + ".rule FieldValueRequired" + invalid}},
		"24: no providerConfig":             {raw: ``, want: []string{at + ".rule FieldValueRequired" + invalid}},
		"25: bad type":                      {raw: rule("type", `"remote"`), want: []string{at + ".rule.type FieldValueNotSupported" + invalid}},
		"25: no type":                       {raw: rule("type", ``), want: []string{at + ".rule.type FieldValueRequired" + invalid}},
		"26: bad action":                    {raw: rule("action", `"LOG"`), want: []string{at + ".rule.action FieldValueNotSupported" + invalid}},
		"26: empty action":                  {raw: rule("action", `""`), want: []string{at + ".rule.action FieldValueRequired" + invalid}},
		"27: bad CIDR":                      {raw: rule("cidrs", `["n/a"]`), want: []string{at + ".rule.cidrs[0] FieldValueInvalid" + invalid}},
		"28: no CIDRs":                      {raw: rule("cidrs", `[]`), want: []string{at + ".rule.cidrs FieldValueRequired" + invalid}},
		"28: CIDRs are null":                {raw: rule("cidrs", `null`), want: []string{at + ".rule.cidrs FieldValueRequired" + invalid}},
		"29: one more than the maximum":     {raw: rule("cidrs", "["+ranges(51)+"]"), want: []string{at + ".rule.cidrs FieldValueTooMany limit_reached"}},
		"30: the maximum":                   {raw: rule("cidrs", "["+ranges(50)+"]")},
		"3.2: lower case":                   {raw: rule("action", `"allow"`)},
		"3.2: lower case deny":              {raw: rule("action", `"deny"`), deny: true},
		"3.2: mixed case":                   {raw: rule("action", `"Deny"`), deny: true},
		"upper case type":                   {raw: rule("type", `"REMOTE_IP"`)},
		"3.2: host bits":                    {raw: rule("cidrs", `["192.0.2.0/24","1.2.3.4/24"]`), want: []string{at + ".rule.cidrs[1] FieldValueInvalid" + invalid}},
		"3.2: host bits of IPv6":            {raw: rule("cidrs", `["2001:db8::1/64"]`), want: []string{at + ".rule.cidrs[0] FieldValueInvalid" + invalid}},
		"3.2: IPv4-mapped":                  {raw: rule("cidrs", `["192.0.2.0/24","10.0.0.0/8","2001:db8::/32","::ffff:1.2.3.4/120"]`), want: []string{at + ".rule.cidrs[3] FieldValueInvalid" + invalid}},
		"3.2: one unreadable range of many": {raw: rule("cidrs", `["192.0.2.0/24","oops"]`), want: []string{at + ".rule.cidrs[1] FieldValueInvalid" + invalid}},
		"an address alone":                  {raw: rule("cidrs", `["192.0.2.7"]`), want: []string{at + ".rule.cidrs[0] FieldValueInvalid" + invalid}},
		"an IPv6 address alone":             {raw: rule("cidrs", `["2001:db8::7"]`), want: []string{at + ".rule.cidrs[0] FieldValueInvalid" + invalid}},
		"a zone":                            {raw: rule("cidrs", `["fe80::%eth0/64"]`), want: []string{at + ".rule.cidrs[0] FieldValueInvalid" + invalid}},
		"spaces":                            {raw: rule("cidrs", `[" 192.0.2.0/24"]`), want: []string{at + ".rule.cidrs[0] FieldValueInvalid" + invalid}},
		"an empty range":                    {raw: rule("cidrs", `[""]`), want: []string{at + ".rule.cidrs[0] FieldValueRequired" + invalid}},
		"a range that is no text":           {raw: rule("cidrs", `[7, null]`), want: []string{at + ".rule.cidrs[0] FieldValueTypeInvalid" + invalid, at + ".rule.cidrs[1] FieldValueTypeInvalid" + invalid}},
		"CIDRs are a text":                  {raw: rule("cidrs", `"192.0.2.0/24"`), want: []string{at + ".rule.cidrs FieldValueTypeInvalid" + invalid}},
		"the same range twice":              {raw: rule("cidrs", `["192.0.2.0/24","192.0.2.0/24"]`), want: []string{"warning: " + at + ".rule.cidrs[1] FieldValueDuplicate" + invalid}},
		"all problems at once":              {raw: `{"rule":{"action":"X","type":"Y","cidrs":["Z","1.1.1.1"]}}`, want: []string{at + ".rule.action FieldValueNotSupported" + invalid, at + ".rule.type FieldValueNotSupported" + invalid, at + ".rule.cidrs[0] FieldValueInvalid" + invalid, at + ".rule.cidrs[1] FieldValueInvalid" + invalid}},
		"an unknown field":                  {raw: strings.Replace(rule("", ""), `"type"`, `"typ": 1, "type"`, 1), want: []string{"warning: " + at + ".rule.typ FieldValueNotSupported" + invalid}},
		"an unknown field beside the rule":  {raw: `{"apiVersion": "x", ` + rule("", "")[1:], want: []string{"warning: " + at + ".apiVersion FieldValueNotSupported" + invalid}},
		"another letter case, which Gardener takes too": {raw: strings.Replace(rule("", ""), `"cidrs"`, `"CIDRs"`, 1), want: []string{"warning: " + at + ".rule.CIDRs FieldValueNotSupported" + invalid}},
		"a field twice":                 {raw: strings.Replace(rule("", ""), `"type"`, `"action": "DENY", "type"`, 1), want: []string{at + ".rule.action FieldValueDuplicate" + invalid}},
		"a rule that is no object":      {raw: `{"rule": []}`, want: []string{at + ".rule FieldValueTypeInvalid" + invalid}},
		"a config that is no object":    {raw: `[]`, want: []string{at + " FieldValueTypeInvalid" + invalid}},
		"no JSON":                       {raw: `{"rule": `, want: []string{at + " FieldValueInvalid" + invalid}},
		"more than fits into an object": {raw: strings.Repeat(" ", 2<<20), want: []string{at + " FieldValueTooMany limit_reached"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, found := gardener.ReadACL(at, []byte(c.raw), gardener.DefaultMostRanges)
			if !slices.Equal(brief(found), c.want) {
				t.Errorf("%q, want %q", brief(found), c.want)
			}
			if bad := !gardener.Usable(found); got.Deny != c.deny || bad != (len(got.Ranges) == 0) {
				t.Errorf("%+v with %v", got, found)
			}
		})
	}
	if _, found := gardener.ReadACL(at, []byte(rule("cidrs", "["+ranges(500)+"]")), 0); len(found) > 0 {
		t.Errorf("29: 0 is no limit: %v", found)
	}
}

// TestHints: what to write instead is in the problem, and its fault.
func TestHints(t *testing.T) {
	for text, want := range map[string]string{
		"1.2.3.4/24":         "write 1.2.3.0/24, or a longer prefix",
		"1.2.3.4":            "write 1.2.3.4/32",
		"2001:db8::7":        "write 2001:db8::7/128",
		"::ffff:1.2.3.4":     "write 1.2.3.4/32",
		"::ffff:1.2.3.4/120": "write 1.2.3.0/24",
		"::ffff:0:0/64":      "write the IPv4 range",
	} {
		_, found := gardener.ReadACL("at", []byte(rule("cidrs", fmt.Sprintf("[%q]", text))), 0)
		if len(found) != 1 || found[0].Next != want {
			t.Errorf("%s: %v", text, found)
			continue
		}
		if f := found[0].Fault(); !fault.Has(f, fault.CodeAccessList) || f.Next != want || !strings.Contains(f.Error(), text) {
			t.Errorf("%s: %v", text, f)
		}
	}
	_, found := gardener.ReadACL("at", []byte(rule("cidrs", `[`+strings.Repeat(`"x",`, 500)+`"y"]`)), 0)
	if len(found) != 101 || found[100].What != "and 401 more" || gardener.Usable(found) {
		t.Errorf("%d problems, the last one %v", len(found), found[len(found)-1])
	}
	_, found = gardener.ReadACL("at", []byte(rule("cidrs", `[`+strings.Repeat(`"10.0.0.0/8",`, 500)+`"y"]`)), 0)
	if gardener.Usable(found) {
		t.Errorf("an error behind 500 warnings is lost")
	}
}

// TestAdmit: behaviours 30 to 38, for Shoots that are created and changed alike.
func TestAdmit(t *testing.T) {
	yes, no := true, false
	extension := func(raw string, disabled *bool) gardener.ShootExtension {
		return gardener.ShootExtension{Type: gardener.Type, ProviderConfig: []byte(raw), Disabled: disabled}
	}
	for name, c := range map[string]struct {
		in   gardener.ShootExtension
		want string
	}{
		"30: below the maximum":         {extension(rule("cidrs", "["+ranges(4)+"]"), nil), ""},
		"31: above":                     {extension(rule("cidrs", "["+ranges(6)+"]"), nil), "spec.extensions[0].providerConfig.rule.cidrs FieldValueTooMany limit_reached"},
		"32: disabled":                  {extension(rule("cidrs", "["+ranges(6)+"]"), &yes), ""},
		"33: disabled is false":         {extension(rule("cidrs", "["+ranges(6)+"]"), &no), "spec.extensions[0].providerConfig.rule.cidrs FieldValueTooMany limit_reached"},
		"34: no CIDRs":                  {extension(rule("cidrs", "[]"), nil), "spec.extensions[0].providerConfig.rule.cidrs FieldValueRequired access_list_invalid"},
		"35: bad action":                {extension(rule("action", `"FOO"`), nil), "spec.extensions[0].providerConfig.rule.action FieldValueNotSupported access_list_invalid"},
		"36: bad type":                  {extension(rule("type", `"FOO"`), nil), "spec.extensions[0].providerConfig.rule.type FieldValueNotSupported access_list_invalid"},
		"37: bad CIDR":                  {extension(rule("cidrs", `["FOO"]`), nil), "spec.extensions[0].providerConfig.rule.cidrs[0] FieldValueInvalid access_list_invalid"},
		"1.2: no rule, refused at once": {extension(`{}`, nil), "spec.extensions[0].providerConfig.rule FieldValueRequired access_list_invalid"},
		"another type":                  {gardener.ShootExtension{Type: "other", ProviderConfig: []byte(`{}`)}, ""},
	} {
		found := gardener.Admit([]gardener.ShootExtension{c.in}, gardener.Options{Most: 5})
		if got := strings.Join(brief(found), "\n"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if strings.HasPrefix(name, "37") && !strings.Contains(found[0].What, `"FOO"`) {
			t.Errorf("37: the text is missing in %v", found[0])
		}
	}
}

func TestAdmitItsAuthor(t *testing.T) {
	for _, c := range []struct {
		cidrs, action, author string
		force                 bool
		want                  string
	}{
		{`["192.0.2.0/24"]`, `"ALLOW"`, "192.0.2.7", false, ""},
		{`["192.0.2.0/24"]`, `"ALLOW"`, "::ffff:192.0.2.7", false, ""},
		{`["192.0.2.0/24"]`, `"ALLOW"`, "198.51.100.7", false, "spec.extensions[0].providerConfig.rule.cidrs FieldValueForbidden access_list_lockout"},
		{`["192.0.2.0/24"]`, `"ALLOW"`, "198.51.100.7", true, "warning: spec.extensions[0].providerConfig.rule.cidrs FieldValueForbidden access_list_lockout"},
		{`["192.0.2.0/24"]`, `"deny"`, "198.51.100.7", false, ""},
		{`["192.0.2.0/24"]`, `"deny"`, "192.0.2.7", false, "spec.extensions[0].providerConfig.rule.cidrs FieldValueForbidden access_list_lockout"},
	} {
		text := strings.Replace(rule("cidrs", c.cidrs), `"ALLOW"`, c.action, 1)
		found := gardener.Admit([]gardener.ShootExtension{{Type: gardener.Type, ProviderConfig: []byte(text)}},
			gardener.Options{Author: netip.MustParseAddr(c.author), Force: c.force})
		if got := strings.Join(brief(found), "\n"); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// FuzzReadACL: nothing panics, answers are bounded and the same each time, and what is read is ranges without host bits.
func FuzzReadACL(f *testing.F) {
	f.Add([]byte(rule("", "")), 50)
	f.Add([]byte(rule("cidrs", `["::ffff:1.2.3.4/120","1.2.3.4","fe80::%eth0/64","2001:db8::/32"]`)), 0)
	f.Add([]byte(`{"rule":{"Action":"deny","action":"allow","x":{"y":[1,2,{}]}}}`), 1)
	f.Fuzz(func(t *testing.T, raw []byte, most int) {
		list, found := gardener.ReadACL("at", raw, most)
		again, same := gardener.ReadACL("at", raw, most)
		if fmt.Sprint(list, found) != fmt.Sprint(again, same) || len(found) > 101 {
			t.Fatalf("%v and %v", found, same)
		}
		for _, p := range found {
			if p.What == "" || p.Code == "" || !strings.HasPrefix(p.Path, "at") && p.Path != "" || len(p.String()) > 1000 {
				t.Errorf("%+v", p)
			}
		}
		if gardener.Usable(found) != (len(list.Ranges) > 0) {
			t.Fatalf("%+v with %v", list, found)
		}
		for _, p := range list.Ranges {
			if p != p.Masked() || p.Addr().Is4In6() || p.Addr() == (netip.Addr{}) {
				t.Fatalf("%v", p)
			}
		}
	})
}
