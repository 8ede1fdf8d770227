// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// run runs a command in the machine and gives what it prints.
func (n *node) run(stdin string, args ...string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.Command(args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	if err := n.host.Run(ctx, cmd); err != nil {
		n.t.Fatalf("%v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// foreign is what others have put into the kernel.
const foreign = `
table inet theirs {
	set routed4 { type ipv4_addr; flags interval; elements = { 10.1.0.0/16, 10.2.0.0/16 } }
	chain prerouting { type filter hook prerouting priority -50; policy accept; ip daddr @routed4 meta mark set 0x10000 accept; }
}
table ip nat {
	chain KUBE-SERVICES { ip daddr 10.96.0.1 tcp dport 443 dnat to 192.0.2.7:6443; }
	chain PREROUTING { type nat hook prerouting priority dstnat; jump KUBE-SERVICES; }
}
table ip tombolo_mesh { chain other-family { }; }
`

func (n *node) populate() {
	n.t.Helper()
	n.run(foreign, "nft", "-f", "-")
	for _, c := range []string{
		"link add eth0 type veth peer name other1", "link set eth0 addrgenmode none", "link set other1 addrgenmode none", "link set other1 up", "link set eth0 up", "addr add 192.0.2.2/24 dev eth0", "addr add 2001:db8::2/64 dev eth0 nodad",
		"route add default via 192.0.2.1", "route add 10.9.0.0/16 via 192.0.2.9 table 99", "-6 route add default via 2001:db8::1",
		"rule add priority 100 fwmark 0x10000/0x10000 lookup 99", "-6 rule add priority 100 fwmark 0x10000/0x10000 lookup 99",
		"route add unreachable 10.0.0.0/8 metric 4278198272", "rule add priority 32600 from 192.0.2.2 lookup main",
	} {
		n.run("", append([]string{"ip"}, strings.Fields(c)...)...)
	}
	// The kernel adds its own routes when the link runs.
	for range 1000 {
		if strings.Contains(n.run("", "ip", "-6", "route", "show", "table", "local"), "2001:db8::2") {
			return
		}
	}
	n.t.Fatal("the link does not come up")
}

// dump is everything in the kernel that the mesh could touch.
func (n *node) dump() string {
	n.t.Helper()
	var b strings.Builder
	for _, c := range []string{
		"nft -s list ruleset", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all", "ip -o addr",
		"ip -o link", "sysctl -a -r ^net\\.",
	} {
		for line := range strings.Lines(n.run("", strings.Fields(c)...)) {
			// What counts, and what depends on the hour.
			if !strings.Contains(line, "nf_conntrack_count") && !strings.Contains(line, "permission denied") {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

func TestWhatOthersHaveIsNotTouched(t *testing.T) {
	n := alone(t)
	n.populate()
	before := n.dump()
	theirs := func() string {
		return n.run("", "nft", "list", "table", "inet", "theirs") + n.run("", "nft", "list", "table", "ip", "nat")
	}
	nat := theirs()
	if err := n.Make(kerneltest.Link); err != nil {
		t.Fatal(err)
	}
	for _, number := range []int{1, 2, 1} {
		reachState(t, n, kerneltest.State(number))
		for line := range strings.Lines(difference(before, n.dump())) {
			if strings.HasPrefix(line, "- ") {
				t.Errorf("gone with state %d: %s", number, line)
			}
		}
		if now := theirs(); now != nat {
			t.Errorf("tables of others with state %d:\n%s\nwere\n%s", number, now, nat)
		}
	}
	reachState(t, n, plan.State{})
	if after := n.dump(); after != before {
		t.Errorf("the machine is not as it was:\n%s", difference(before, after))
	}
}

func difference(a, b string) string {
	var out strings.Builder
	for line := range strings.Lines(a) {
		if !strings.Contains(b, line) {
			out.WriteString("- " + line)
		}
	}
	for line := range strings.Lines(b) {
		if !strings.Contains(a, line) {
			out.WriteString("+ " + line)
		}
	}
	return out.String()
}

func reachState(t *testing.T, n *node, want plan.State) {
	t.Helper()
	for range 2 { // a second time there is nothing to do
		have, err := n.Observe()
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Apply(plan.Diff(have, want)); err != nil {
			t.Fatal(err)
		}
	}
	have, err := n.Observe()
	if err != nil {
		t.Fatal(err)
	}
	if left := plan.Diff(have, want); len(left) != 0 {
		t.Fatalf("left to do:\n%s", plan.Print(left))
	}
}

func TestClashesAreFoundBeforeAnythingChanges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		setup  string // of nft, where it begins with table, else of ip
		change func(*plan.State)
		want   string
	}{
		{"nothing", "", nil, ""},
		{"what others usually have", "link add cali1 type veth peer name other2; link add cilium_host type veth peer name other3; link add flannel.1 type veth peer name other4", nil, ""},
		{"a table of our name", "table inet tombolo_mesh { chain x { }; }", nil, "table inet tombolo_mesh"},
		{"a rule on our mark", "rule add priority 7 fwmark 0x40/0x60 lookup main", nil, "0x60"},
		{"a rule on a whole mark with our bits", "rule add priority 7 fwmark 0xca6c lookup main", nil, "0xca6c"},
		{"the same for IPv6", "-6 rule add priority 7 not fwmark 0xca6c lookup main", nil, "0xca6c"},
		{"a rule on a whole mark without our bits", "rule add priority 7 fwmark 0x10000 lookup main", nil, ""},
		{"a rule of our priority", "rule add priority 32500 from 192.0.2.2 lookup main", nil, "priority 32500"},
		{"a rule into our table", "rule add priority 7 from 192.0.2.2 lookup 180", nil, "table 180"},
		{"a route in our table", "route add unreachable 10.7.0.0/16 table 180", nil, "table 180"},
		{"the same for IPv6", "-6 route add unreachable fd07::/64 table 180", nil, "table 180"},
		{"a route in the place of ours", "route add unreachable 100.112.0.0/12 metric 1", nil, "100.112.0.0/12"},
		{"a link of our name", "link add tombolo0 type veth peer name other5", nil, "link tombolo0"},
		{"KubeSpan", "link add kubespan type veth peer name other6", nil, "KubeSpan"},
		{"Calico on our bits", "link add cali1 type veth peer name other7", marks(0x20000, 0x40000), "Calico"},
		{"kube-proxy on our bits", "table ip nat { chain KUBE-MARK-MASQ { }; }", marks(0x4000, 0x8000), "kube-proxy"},
		{"Cilium on our bits", "link add cilium_host type veth peer name other8", marks(0x100, 0x200), "Cilium"},
		{"Flannel on our bits", "link add flannel.1 type veth peer name other9", marks(0x4000, 0x10000), "Flannel"},
		{"Tailscale on our bits", "link add tailscale0 type veth peer name other10", marks(0x40000, 0x80000), "Tailscale"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := alone(t)
			n.run("", "ip", "link", "set", "lo", "up")
			if strings.HasPrefix(tc.setup, "table") {
				n.run(tc.setup+"\n", "nft", "-f", "-")
			} else if tc.setup != "" {
				for c := range strings.SplitSeq(tc.setup, ";") {
					n.run("", append([]string{"ip"}, strings.Fields(c)...)...)
				}
			}
			want := kerneltest.State(1)
			if tc.change != nil {
				tc.change(&want)
			}
			before := n.dump()
			faults := n.Check(want)
			if after := n.dump(); after != before {
				t.Errorf("to look has changed\n%s", difference(before, after))
			}
			if tc.want == "" {
				if len(faults) != 0 {
					t.Errorf("refused: %v", faults)
				}
				return
			}
			if len(faults) == 0 {
				t.Fatal("nothing is found")
			}
			for _, f := range faults {
				if f.Code != fault.CodeClash || f.Why == "" || f.Next == "" {
					t.Errorf("fault %s", f.Explain())
				}
			}
			if !strings.Contains(fmt.Sprint(faults), tc.want) {
				t.Errorf("%v does not name %q", faults, tc.want)
			}
		})
	}
}

func marks(own, mesh uint32) func(*plan.State) {
	return func(s *plan.State) {
		for i := range s.Rules {
			s.Rules[i].Mark, s.Rules[i].Mask = mesh, own|mesh
			if s.Rules[i].Table == 254 || s.Rules[i].Priority > 32500 {
				s.Rules[i].Mark |= own
			}
		}
	}
}

// Two meshes on one machine know nothing of each other.
func TestTwoMeshesOnOneMachine(t *testing.T) {
	n := alone(t)
	second := &node{t: t, host: n.host}
	err := n.host.Do(func() (err error) {
		second.kernel, err = kernel.New(kernel.Names{Link: "mesh1", Filter: "second", Table: 190, Protocol: kernel.Protocol})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { second.kernel.Close() })
	for _, link := range []string{kerneltest.Link, "mesh1"} {
		if err := n.Make(link); err != nil {
			t.Fatal(err)
		}
	}
	in := input()
	first, _, _ := topology.Plan(in)
	in.Options.Link, in.Options.Filter, in.Options.Table, in.Options.Rule = "mesh1", "second", 190, 32400
	in.Options.Marks = topology.Marks{Own: 0x80, Mesh: 0x100, Mask: 0x180}
	in.Options.Overlay6, in.Options.Overlay4 = netip.MustParsePrefix("fd00:0:0:3::/64"), netip.MustParsePrefix("100.64.0.0/12")
	in.Self.Overlay4, in.Self.Overlay6 = netip.MustParseAddr("100.64.0.1"), netip.MustParseAddr("fd00:0:0:3::1")
	other, _, _ := topology.Plan(in)
	reachState(t, n, first)
	if faults := second.Check(other); len(faults) != 0 {
		t.Errorf("the second is refused: %v", faults)
	}
	reachState(t, second, other)
	reachState(t, n, plan.State{})
	if have, err := second.Observe(); err != nil || len(plan.Diff(have, other)) != 0 {
		t.Errorf("the end of the first takes of the second: %v\n%s", err, plan.Print(plan.Diff(have, other)))
	}
	reachState(t, second, plan.State{})
}

// Who is faster than we are is not overwritten.
func TestAForeignTableIsNotWritten(t *testing.T) {
	n := alone(t)
	if err := n.Make(kerneltest.Link); err != nil {
		t.Fatal(err)
	}
	have, err := n.Observe()
	if err != nil {
		t.Fatal(err)
	}
	n.run("table inet tombolo_mesh { chain x { }; }\n", "nft", "-f", "-")
	before := n.run("", "nft", "list", "ruleset")
	if err := n.Apply(plan.Diff(have, kerneltest.State(1))); !fault.Has(err, fault.CodeClash) {
		t.Errorf("it is written: %v", err)
	}
	if have, err = n.Observe(); err != nil || len(have.Tables) != 0 {
		t.Errorf("it counts as ours: %v, %v", have.Tables, err)
	}
	if err := n.Apply(plan.Diff(have, plan.State{})); err != nil {
		t.Errorf("to remove ours: %v", err)
	}
	if after := n.run("", "nft", "list", "ruleset"); after != before {
		t.Errorf("it is now\n%s", after)
	}
}

// Somebody changes a rule of ours: it is put back.
func TestARuleThatWasChangedIsPutBack(t *testing.T) {
	n := alone(t)
	if err := n.Make(kerneltest.Link); err != nil {
		t.Fatal(err)
	}
	want := kerneltest.State(1)
	reachState(t, n, want)
	n.run("", "nft", "insert", "rule", "inet", "tombolo_mesh", "forward", "accept")
	n.run("", "nft", "flush", "chain", "inet", "tombolo_mesh", "output")
	n.run("", "nft", "add", "rule", "inet", "tombolo_mesh", "access", "accept", "comment", `"do drop"`)
	have, err := n.Observe()
	if err != nil {
		t.Fatal(err)
	}
	if steps := plan.Diff(have, want); len(steps) != 3 {
		t.Errorf("noticed:\n%s", plan.Print(steps))
	}
	reachState(t, n, want)
}

func TestAKernelWithoutWhatWeNeed(t *testing.T) {
	t.Run("permission", func(t *testing.T) {
		n := alone(t)
		err := n.host.Do(func() error { // on a thread that ends with it
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			if err := unix.Capset(&header, &none[0]); err != nil {
				return err
			}
			k, err := kernel.New(kernel.Names{Link: kerneltest.Link, Filter: "tombolo_mesh", Table: 180, Protocol: kernel.Protocol})
			if err != nil {
				return err
			}
			defer k.Close()
			for _, f := range k.Check(kerneltest.State(1)) {
				return f
			}
			return nil
		})
		if f := fault.From(err); !fault.Has(err, fault.CodeUnsupported) || !strings.Contains(f.Next, "CAP_NET_ADMIN") {
			t.Errorf("without a right: %v", err)
		}
	})
	t.Run("sysctls", func(t *testing.T) { // as in a container that is not privileged
		n := alone(t)
		err := n.host.Do(func() error {
			for _, err := range []error{
				unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
				unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""),
				unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
			} {
				if err != nil {
					return err
				}
			}
			for _, f := range n.kernel.Check(kerneltest.State(1)) {
				return f
			}
			return nil
		})
		if f := fault.From(err); !fault.Has(err, fault.CodeUnsupported) || !strings.Contains(f.Next, "/proc/sys/net") {
			t.Errorf("read-only: %v", err)
		}
	})
	t.Run("expressions", func(t *testing.T) {
		n := alone(t)
		want := kerneltest.State(1)
		want.Tables[0].Chains = append(want.Tables[0].Chains, plan.Chain{Name: "odd", Hook: "prerouting", Type: "route", Priority: 1})
		before := n.dump()
		faults := n.Check(want)
		if len(faults) != 1 || faults[0].Code != fault.CodeUnsupported || faults[0].Next == "" {
			t.Errorf("faults %v", faults)
		}
		if after := n.dump(); after != before {
			t.Errorf("to look has changed\n%s", difference(before, after))
		}
	})
}

func TestLargeSetsChangeByOneElement(t *testing.T) {
	n := alone(t)
	const many = 10_000
	large := func(more ...string) plan.State {
		t4 := plan.Table{Name: "tombolo_mesh", Sets: []plan.Set{{Name: "routed4", Family: plan.IPv4}, {Name: "routed6", Family: plan.IPv6}}}
		for i := range many {
			a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0})
			t4.Sets[0].Ranges = append(t4.Sets[0].Ranges, plan.RangeOf(netip.PrefixFrom(a, 24)))
			b := netip.AddrFrom16([16]byte{0xfd, 0, byte(i >> 8), byte(i)})
			t4.Sets[1].Ranges = append(t4.Sets[1].Ranges, plan.RangeOf(netip.PrefixFrom(b, 48)))
		}
		for _, p := range more {
			t4.Sets[0].Ranges = append(t4.Sets[0].Ranges, plan.RangeOf(netip.MustParsePrefix(p)))
		}
		return plan.State{Tables: []plan.Table{t4}}
	}
	reachState(t, n, large())
	sent := n.kernel.Sent()
	if sent.Ranges != 2*many || sent.Messages > 2*many/256+10 || sent.Transactions > 2*many/1536+2 {
		t.Errorf("all of them: %+v", sent)
	}
	reachState(t, n, large("192.168.7.0/24"))
	if one := n.kernel.Sent(); one.Ranges != sent.Ranges+1 || one.Messages != sent.Messages+1 || one.Transactions != sent.Transactions+1 {
		t.Errorf("one more: %+v after %+v", one, sent)
	}
	reachState(t, n, large())
	if back := n.kernel.Sent(); back.Ranges != sent.Ranges+2 || back.Messages != sent.Messages+2 {
		t.Errorf("one less: %+v after %+v", back, sent)
	}
	if text := n.run("", "nft", "list", "set", "inet", "tombolo_mesh", "routed4"); !strings.Contains(text, "10.39.15.0/24") {
		t.Errorf("nft does not show the last one: %d bytes", len(text))
	}
}
