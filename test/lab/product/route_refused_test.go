// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// refused starts change nothing.
func (r *routeRig) refused(t *testing.T, starts map[string]start) {
	t.Helper()
	for what, c := range starts {
		_, err := labtest.Run(r.host, 30*time.Second, nil, r.program, append([]string{"route"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

type start struct {
	args []string
	want string
}

// refusedStarts are those that a running one is in the way of, and those that nobody could run.
func (r *routeRig) refusedStarts(t *testing.T) {
	r.refused(t, map[string]start{
		"a second one":         {[]string{"--config", r.config}, "is served by a live process"},
		"a smaller range":      {r.flags("c1", "--map", "10.42.0.0/24=240.2.0.0/25"), "is smaller than"},
		"nothing to be routed": {r.flags("c1"), "there is no range"},
	})
	if err := r.greets("10.42.0.80:7000", "c1"); err != nil {
		t.Errorf("after refused starts: %v", err)
	}
}

func (r *routeRig) flags(certificate string, more ...string) []string {
	return append([]string{"--certificate", filepath.Join(r.dir, "route", certificate+".pem"), "--hub", lab.ControlAddr + ":8443"}, more...)
}

// refusedAlone are starts that would harm this machine, or could not work.
func (r *routeRig) refusedAlone(t *testing.T) {
	r.verb("certificate", "issue", "--role", "client", "--cluster", "c1", "--name", "x", "--out", filepath.Join(r.dir, "route/client.pem"))
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority = netlink.FAMILY_V4, 181, 100
	if err := r.host.Netlink().RuleAdd(rule); err != nil {
		t.Fatal(err)
	}
	r.refused(t, map[string]start{
		"the hub is covered": {r.flags("c1", "--map", "10.42.0.0/24=198.51.100.0/24"), "covers the hub " + lab.ControlAddr + ":8443"},
		"another role":       {r.flags("client", "--range", "10.42.0.0/24"), "/cluster/c1/client/x"},
		"a table in use":     {r.flags("c1", "--range", "10.42.0.0/24"), "kernel_clash: ipv4 rule 100: from all lookup 181: it leads into table 181"},
	})
	if err := r.host.Netlink().RuleDel(rule); err != nil {
		t.Error(err)
	}
	r.nothingLeft()
}
