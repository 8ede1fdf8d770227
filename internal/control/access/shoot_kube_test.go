// SPDX-License-Identifier: Apache-2.0

//go:build kube

package access_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

// TestShootsAreJudgedInTheGarden: the API server stores no Shoot whose list a seed would refuse, says which field it is,
// and leaves alone what has no list or is being deleted.
func TestShootsAreJudgedInTheGarden(t *testing.T) {
	t.Parallel()
	o := manifest.ControllerDefaults()
	o.Shoots = true
	x := startWith(t, o, "  shootAdmission: {maxRanges: 2}\n")
	x.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: garden-p}}`)
	x.apply(t, inGarden("old", true, `{action: LOG}`)) // nobody judged it
	x.replica(t)
	x.webhooks(t)
	const at = "spec.extensions[0].providerConfig.rule"
	put := func(text string) string {
		_, err := run(t, text, x.kubectl, "--kubeconfig", x.kubeconfig, "apply", "-f", "-")
		if err != nil {
			return err.Error()
		}
		return ""
	}
	for _, c := range []struct {
		name, rule, want string
		labelled         bool
	}{
		{"good", `{action: ALLOW, type: remote_ip, cidrs: [192.0.2.0/24]}`, "", true},
		{"host-bits", `{action: ALLOW, type: remote_ip, cidrs: [192.0.2.7/24]}`, at + ".cidrs[0]", true},
		{"mapped", `{action: DENY, type: remote_ip, cidrs: ["::ffff:192.0.2.0/120"]}`, at + ".cidrs[0]", true},
		{"many", `{action: ALLOW, type: remote_ip, cidrs: [10.0.0.0/8, 192.0.2.0/24, 198.51.100.0/24]}`, at + ".cidrs", true},
		{"log", `{action: LOG, type: remote_ip, cidrs: [192.0.2.0/24]}`, at + ".action", true},
		{"none", `{}`, at + ".action", true},
		{"unlabelled", `{action: LOG}`, "", false}, // Gardener labels those with a list
		{"good", `{action: allow, type: remote_ip, cidrs: [198.51.100.0/24]}`, "", true},
		{"good", `{action: allow, type: remote_ip, cidrs: [198.51.100.0/33]}`, at + ".cidrs[0]", true},
		{"old", `{action: LOG, type: remote_ip}`, at + ".action", true},
	} {
		switch got := put(inGarden(c.name, c.labelled, c.rule)); {
		case c.want == "" && got != "":
			t.Errorf("%s: %s", c.name, got)
		case c.want != "" && (!strings.Contains(got, `The Shoot "`+c.name+`" is invalid: `) || !strings.Contains(got, c.want)):
			t.Errorf("%s: %q, want %s", c.name, got, c.want)
		}
	}
	if got := x.kube(t, "get", "shoots", "-n", "garden-p", "-o", "jsonpath={.items[*].metadata.name}"); got != "good old unlabelled" {
		t.Errorf("stored are %s", got)
	}
	if got := x.kube(t, "get", "shoot", "-n", "garden-p", "good", "-o", "jsonpath={.spec.extensions[0].providerConfig.rule.cidrs}"); got !=
		`["198.51.100.0/24"]` {
		t.Errorf("the list is %s", got)
	}
	// A Shoot with a bad list can be deleted, which takes its finalizers by an update.
	x.kube(t, "delete", "shoot", "-n", "garden-p", "old", "--wait=false")
	x.kube(t, "patch", "shoot", "-n", "garden-p", "old", "--type=merge", `-p={"metadata":{"finalizers":null}}`)
	x.kube(t, "wait", "--for=delete", "shoot/old", "-n", "garden-p", "--timeout=1m")
}

// inGarden is a Shoot with a list.
func inGarden(name string, labelled bool, rule string) string {
	label := ""
	if labelled {
		label = `, labels: {extensions.extensions.gardener.cloud/acl: "true"}`
	}
	return fmt.Sprintf(`apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: %s, namespace: garden-p, finalizers: [gardener.example/keep]%s}
spec: {extensions: [{type: acl, providerConfig: {rule: %s}}]}
`, name, label, rule)
}
