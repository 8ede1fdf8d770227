// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
)

// TestWhatTheReferenceTakes: arguments that mean little are no reason to end.
func TestWhatTheReferenceTakes(t *testing.T) {
	getenv := func(string) string { return "" }
	for _, c := range []struct {
		args []string
		bad  bool
	}{
		{nil, false},
		{[]string{"--lease-label="}, false},
		{[]string{"--lease-label=", "--count-server-leases"}, true},
		{[]string{"--sync-interval=0"}, false},
		{[]string{"--sync-interval=20s"}, true}, // more than its cap
		{[]string{"--proxy-server-host="}, false},
		{[]string{"--lease-label-selector=a=b"}, false},
		{[]string{"--agent-identifiers=color=blue"}, true},
	} {
		var o Options
		fl := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		o.Flags(fl, getenv)
		if err := fl.Parse(c.args); err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		a, err := New(o, Deps{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry(), Getenv: getenv})
		if (err != nil) != c.bad {
			t.Errorf("%q: %v", c.args, err)
		}
		if err == nil && (a.Sync <= 0 || slices.Contains(a.Hosts, "")) {
			t.Errorf("%q: each %v at %q", c.args, a.Sync, a.Hosts)
		}
	}
}
