// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"fmt"
	"strings"
	"testing"
)

// TestAShootIsJudged: numbers are those of the behaviours that the admission of Gardener's extension asserts. An update is
// judged as a new Shoot is (38).
func TestAShootIsJudged(t *testing.T) {
	list := func(rule string) string { return `{"type": "acl", "providerConfig": {"rule": ` + rule + `}}` }
	const good = `{"action": "ALLOW", "type": "remote_ip", "cidrs": ["192.0.2.0/24"]}`
	const at = "spec.extensions[0].providerConfig.rule"
	for name, c := range map[string]struct{ extensions, want string }{
		"30: the maximum":       {list(strings.Replace(good, `["`, `["203.0.113.0/24", "`, 1)), ""},
		"31: above the maximum": {list(strings.Replace(good, `["`, `["10.0.0.0/8", "203.0.113.0/24", "`, 1)), "FieldValueTooMany " + at + ".cidrs"},
		"32: disabled":          {`{"type": "acl", "disabled": true, "providerConfig": {}}`, ""},
		"33: not disabled":      {`{"type": "acl", "disabled": false, "providerConfig": {}}`, "FieldValueRequired " + at},
		"34: no ranges":         {list(`{"action": "ALLOW", "type": "remote_ip", "cidrs": []}`), "FieldValueRequired " + at + ".cidrs"},
		"35: bad action":        {list(strings.Replace(good, "ALLOW", "LOG", 1)), "FieldValueNotSupported " + at + ".action"},
		"36: bad type":          {list(strings.Replace(good, "remote_ip", "ip", 1)), "FieldValueNotSupported " + at + ".type"},
		"37: bad CIDR":          {list(strings.Replace(good, "192.0.2.0/24", "n/a", 1)), "FieldValueInvalid " + at + ".cidrs[0]"},
		"no providerConfig":     {`{"type": "acl"}`, "FieldValueRequired " + at},
		"the second":            {`{"type": "dns"}, ` + list(`{}`), "FieldValueRequired spec.extensions[1].providerConfig.rule.action"},
		"another type":          {`{"type": "dns", "providerConfig": 1}`, ""},
		"none":                  {"", ""},
	} {
		out := admit("s", []byte(`{"spec": {"extensions": [`+c.extensions+`]}}`), 2)
		got := ""
		if out.Result != nil {
			got = fmt.Sprint(out.Result.Details.Causes[0].Type, " ", out.Result.Details.Causes[0].Field)
		}
		if got != c.want || out.Allowed != (c.want == "") {
			t.Errorf("%s: %q, %+v", name, got, out.Result)
		}
	}
	if out := admit("s", []byte(`{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"extensions": [{"type": "acl"}]}}`), 2); !out.Allowed {
		t.Error("a Shoot cannot be deleted")
	}
	if out := admit("s", []byte(`{"spec": {"extensions": [`+list(strings.Replace(good, "192.0.2.0/24", "0.0.0.0/0", 1))+`]}}`), 2); !out.Allowed || len(out.Warnings) != 1 {
		t.Errorf("%+v", out)
	}
	for annotations, want := range map[string]string{
		`{"tombolo.dev/author-address": "192.0.2.7"}`:                                 "",
		`{"tombolo.dev/author-address": "198.51.100.7"}`:                              "FieldValueForbidden " + at + ".cidrs",
		`{"tombolo.dev/author-address": "198.51.100.7", "tombolo.dev/force": "true"}`: "",
		`{"tombolo.dev/author-address": "me"}`:                                        "FieldValueInvalid metadata.annotations[tombolo.dev/author-address]",
	} {
		out := admit("s", []byte(`{"metadata": {"annotations": `+annotations+`}, "spec": {"extensions": [`+list(good)+`]}}`), 2)
		got := ""
		if out.Result != nil {
			got = fmt.Sprint(out.Result.Details.Causes[0].Type, " ", out.Result.Details.Causes[0].Field)
		}
		if got != want || strings.Contains(annotations, "force") != (len(out.Warnings) == 1) {
			t.Errorf("%s: %q, %v", annotations, got, out.Warnings)
		}
	}
	if out := admit("s", []byte(`{`), 2); out.Allowed {
		t.Error("no JSON")
	}
}
