// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
)

// What somebody else takes away from us is noticed.
func TestWhatOthersTakeAwayIsNoticed(t *testing.T) {
	n := alone(t)
	if err := n.Make(kerneltest.Link); err != nil {
		t.Fatal(err)
	}
	want := kerneltest.State(1)
	reachState(t, n, want)
	var watch *kernel.Watch
	err := n.host.Do(func() (err error) {
		watch, err = kernel.NewWatch(kernel.Names{Link: kerneltest.Link, Filter: "tombolo_mesh", Table: 180, Protocol: kernel.Protocol})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 1000)
	group := run.NewGroup(t.Context())
	group.Go("filter", func(ctx context.Context) error { return watch.Filter(ctx, func() { told <- "filter" }) })
	group.Go("route", func(ctx context.Context) error { return watch.Route(ctx, func() { told <- "route" }) })

	for _, tc := range []struct {
		what, says string
		args       []string
	}{
		{"the ruleset", "filter", []string{"nft", "flush", "ruleset"}},
		{"a route", "route", []string{"ip", "route", "del", "unreachable", "default", "table", "180"}},
		{"a rule", "route", []string{"ip", "rule", "del", "priority", "32501"}},
		{"an address", "route", []string{"ip", "addr", "del", "100.112.0.1/32", "dev", kerneltest.Link}},
		{"the link's state", "route", []string{"ip", "link", "set", kerneltest.Link, "down"}},
		{"the link's name", "route", []string{"ip", "link", "set", kerneltest.Link, "name", "x0"}},
		{"the link", "route", []string{"ip", "link", "del", kerneltest.Link}},
	} {
		for len(told) > 0 {
			<-told
		}
		n.run("", tc.args...)
		for heard := ""; heard != tc.says; {
			select {
			case heard = <-told:
			case <-time.After(patience):
				t.Fatalf("nobody is told of %s", tc.what)
			}
		}
		if tc.what == "the link" {
			if err := n.Make(kerneltest.Link); err != nil {
				t.Fatal(err)
			}
		}
		reachState(t, n, want)
	}
	group.Stop()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A link that was renamed is not confused with another one that took its name.
func TestALinkOfOthersUnderOurNameIsLeftAlone(t *testing.T) {
	n := alone(t)
	if err := n.Make(kerneltest.Link); err != nil {
		t.Fatal(err)
	}
	want := kerneltest.State(1)
	reachState(t, n, want)
	n.run("", "ip", "link", "set", kerneltest.Link, "name", "x0")
	if err := n.Make(kerneltest.Link); err != nil {
		t.Fatal(err)
	}
	before := n.dump()
	_, err := n.Observe()
	if f := fault.From(err); !fault.Has(err, fault.CodeClash) || !strings.Contains(f.Why, "x0") || f.Next == "" {
		t.Errorf("with two of them: %v", err)
	}
	if after := n.dump(); after != before {
		t.Errorf("to look has changed\n%s", difference(before, after))
	}
	n.run("", "ip", "link", "del", kerneltest.Link)
	reachState(t, n, want)
	if links := n.run("", "ip", "-o", "link"); strings.Contains(links, "x0") || !strings.Contains(links, kerneltest.Link) {
		t.Errorf("the name is not taken back:\n%s", links)
	}
}
