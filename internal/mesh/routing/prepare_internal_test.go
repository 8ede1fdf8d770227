// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// codesOf are those of a joined error, sorted.
func codesOf(err error) (out []string) {
	if err == nil {
		return nil
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		out = append(out, string(fault.From(e).Code))
	}
	slices.Sort(out)
	return out
}

// All that stands in the way of a start is said at once, and nothing is changed.
func TestAStartIsRefusedBeforeAnythingChanges(t *testing.T) {
	clash := fault.New(fault.CodeClash, "a rule").Whyf("somebody has it").Hint("choose another")
	lacks := fault.New(fault.CodeUnsupported, "TUN").Whyf("there is none").Hint("load it")
	prefix := netip.MustParsePrefix
	for _, tc := range []struct {
		name   string
		change func(*topology.Input)
		kernel []*fault.Fault
		able   []*fault.Fault
		want   []string
		says   string
	}{
		{name: "nothing"},
		{name: "a clash", kernel: []*fault.Fault{clash, clash}, want: []string{"mesh_clash", "mesh_clash"}, says: "a rule"},
		{name: "no TUN", able: []*fault.Fault{lacks}, kernel: []*fault.Fault{clash}, want: []string{"kernel_unsupported"}, says: "TUN"},
		{name: "an MTU that is too small", change: func(in *topology.Input) { in.Options.MTU = 1279 }, want: []string{"config_invalid"}, says: "mesh.mtu"},
		{name: "marks that meet", change: func(in *topology.Input) { in.Options.Marks.Mesh = in.Options.Marks.Own }, want: []string{"config_invalid"}, says: "mesh.marks"},
		{name: "our own key", change: func(in *topology.Input) { in.Members[1].Key = in.Self.Key }, want: []string{"mesh_self"}, says: "n3"},
		{name: "the default route", change: func(in *topology.Input) { in.Self.Ranges = append(in.Self.Ranges, prefix("0.0.0.0/0")) }, want: []string{"mesh_range"}, says: "the default route"},
		{name: "the default route of IPv6", change: func(in *topology.Input) { in.Self.Ranges = append(in.Self.Ranges, prefix("::/0")) }, want: []string{"mesh_range"}, says: "the default route"},
		{name: "our own underlay", change: func(in *topology.Input) {
			in.Self.Ranges = append(in.Self.Ranges, prefix("192.168.0.0/16"))
			in.Self.Addresses = []netip.Addr{netip.MustParseAddr("192.168.7.1")}
		}, want: []string{"mesh_range"}, says: "192.168.7.1"},
		{name: "what another says of itself keeps nobody from starting", change: func(in *topology.Input) {
			in.Members[0].Addresses = []netip.Addr{netip.MustParseAddr("10.0.1.9")} // within our range
			in.Members[0].Ranges = append(in.Members[0].Ranges, prefix("0.0.0.0/0"))
			in.Members[1].Key = in.Members[0].Key
		}},
		{name: "everything at once", change: func(in *topology.Input) {
			in.Options.MTU, in.Options.Table = 1, 254
			in.Members[0].Key = in.Self.Key
			in.Self.Ranges = append(in.Self.Ranges, prefix("127.0.0.0/8"))
		}, able: []*fault.Fault{lacks}, want: []string{"config_invalid", "config_invalid", "kernel_unsupported", "mesh_range", "mesh_self"}, says: "mesh.table"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(p *Parts) { p.Able = func() []*fault.Fault { return tc.able } }, func(t *testing.T, r *rig) {
				r.kernel.Faults = tc.kernel
				in := input(3)
				if tc.change != nil {
					tc.change(&in)
				}
				err := r.Prepare(in)
				if got := codesOf(err); !slices.Equal(got, tc.want) {
					t.Fatalf("%v: %v", got, err)
				}
				if err != nil {
					if !strings.Contains(err.Error(), tc.says) {
						t.Errorf("%v does not name %q", err, tc.says)
					}
					for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
						if f := fault.From(e); f.Why == "" && f.Code != fault.CodeSelf && f.Code != fault.CodeRange {
							t.Errorf("without a reason: %s", f.Explain())
						}
					}
				}
				if len(r.kernel.Log) != 0 || r.kernel.lacks(plan.State{}) != "" {
					t.Error("something has changed")
				}
			})
		})
	}
}

// An input without options has those of the parts, and the machine's own facts count.
func TestPrepareLooksAtThisMachine(t *testing.T) {
	inBubble(t, func(p *Parts) {
		p.Local = func() (topology.Local, error) { return topology.Local{}, errBroken }
	}, func(t *testing.T, r *rig) {
		in := input(2)
		in.Options.MTU = 1
		if err := r.Prepare(in); !slices.Equal(codesOf(err), []string{"config_invalid", "internal"}) || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%v", err)
		}
	})
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(2)
		in.Options = topology.Options{}
		if err := r.Prepare(in); err != nil {
			t.Error(err)
		}
	})
}

// What a node that runs may not announce is what its next start would be refused for.
func TestAnnouncedByWhoRuns(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(3)
		if err := r.Announced(in); err != nil {
			t.Error(err)
		}
		in.Self.Ranges = append(in.Self.Ranges, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("127.0.0.0/8"))
		if got := codesOf(r.Announced(in)); !slices.Equal(got, []string{"mesh_range", "mesh_range"}) {
			t.Errorf("%v", got)
		}
	})
}

func TestWithoutAKernelThereIsNoRouting(t *testing.T) {
	if _, err := New(Parts{}); !fault.Has(err, fault.CodeInternal) {
		t.Errorf("%v", err)
	}
}
