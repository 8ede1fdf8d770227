// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// router is a Routing that runs in a host, over a kernel of its own: the node's looks on.
type router struct {
	*routing.Routing
	n     *node
	log   *bytes.Buffer
	group *run.Group
	ended error
}

func newRouter(t *testing.T, n *node, change func(*routing.Parts)) *router {
	t.Helper()
	names := routing.Names(input().Options)
	r := &router{n: n, log: &bytes.Buffer{}}
	p := routing.Parts{
		Kernel: newNode(t, n.host).kernel, Options: input().Options, Log: slog.New(slog.NewTextHandler(r.log, nil)), Metrics: prometheus.NewRegistry(),
		Able:   func() []*fault.Fault { return kernel.Able(true) },
		Watch:  func() (routing.Watch, error) { return kernel.NewWatch(names) },
		Caller: func(p topology.Peer) string { return "spiffe://t/cluster/c1/node/" + p.ID },
	}
	if change != nil {
		change(&p)
	}
	var err error
	if r.Routing, err = routing.New(p); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *router) start() {
	r.group = run.NewGroup(context.Background())
	r.group.Do(func(ctx context.Context) {
		r.ended = r.n.host.Do(func() error { return r.Run(ctx) })
	})
	r.n.t.Cleanup(func() { r.stop() })
}

func (r *router) stop() error {
	r.group.Stop()
	r.group.Wait()
	return r.ended
}

func (r *router) reach(what string, in topology.Input) {
	r.n.t.Helper()
	want, _, _ := topology.Plan(in)
	runtest.Eventually(r.n.t, what, func() bool {
		have, err := r.n.Observe()
		return err == nil && len(plan.Diff(have, want)) == 0 && r.Status().InForce
	})
}

// to sets the input, and waits until it is in force.
func (r *router) to(in topology.Input) {
	r.n.t.Helper()
	r.Set(in)
	r.reach("the input", in)
}

func TestRoutingIsRefusedBeforeAnythingChanges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		setup  string // of nft, where it begins with table, else of ip
		change func(*topology.Input)
		within func() error // on the thread, before
		code   fault.Code
		says   string
	}{
		{name: "nothing"},
		{name: "a mark", setup: "rule add priority 7 fwmark 0x40/0x60 lookup main", code: fault.CodeClash, says: "0x60"},
		{name: "a table", setup: "rule add priority 7 from 192.0.2.9 lookup 180", code: fault.CodeClash, says: "table 180"},
		{name: "a priority", setup: "rule add priority 32500 from 192.0.2.9 lookup main", code: fault.CodeClash, says: "priority 32500"},
		{name: "a route", setup: "route add unreachable 10.7.0.0/16 table 180", code: fault.CodeClash, says: "10.7.0.0/16"},
		{name: "a table of nftables", setup: "table inet tombolo_mesh { chain x { }; }", code: fault.CodeClash, says: "table inet tombolo_mesh"},
		{name: "a link", setup: "link add tombolo0 type veth peer name other5", code: fault.CodeClash, says: "link tombolo0"},
		{name: "KubeSpan", setup: "link add kubespan type veth peer name other6", code: fault.CodeClash, says: "KubeSpan"},
		{name: "Calico on our bits", setup: "link add cali1 type veth peer name other7", code: fault.CodeClash, says: "Calico",
			change: func(in *topology.Input) {
				in.Options.Marks = topology.Marks{Own: 0x20000, Mesh: 0x40000, Mask: 0x60000}
			}},
		{name: "our own key", change: func(in *topology.Input) { in.Members[0].Key = in.Self.Key }, code: fault.CodeSelf, says: "m2"},
		{name: "the default route", change: func(in *topology.Input) { in.Self.Ranges = append(in.Self.Ranges, netip.MustParsePrefix("0.0.0.0/0")) },
			code: fault.CodeRange, says: "the default route"},
		{name: "an MTU that is too small", change: func(in *topology.Input) { in.Options.MTU = 1000 }, code: fault.CodeConfig, says: "mesh.mtu"},
		{name: "no permission", within: func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			return unix.Capset(&header, &none[0])
		}, code: fault.CodeUnsupported, says: "CAP_NET_ADMIN"},
		{name: "no TUN", within: func() error {
			return errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
				unix.Mount("tmpfs", "/dev/net", "tmpfs", 0, ""))
		}, code: fault.CodeUnsupported, says: "/dev/net/tun"},
		{name: "no sysctls", within: func() error {
			return errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
				unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""), unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, code: fault.CodeUnsupported, says: "/proc/sys/net"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := alone(t)
			n.populate()
			if strings.HasPrefix(tc.setup, "table") {
				n.run(tc.setup+"\n", "nft", "-f", "-")
			} else if tc.setup != "" {
				n.run("", append([]string{"ip"}, strings.Fields(tc.setup)...)...)
			}
			in := input()
			in.Options.Overlay4 = netip.MustParsePrefix("100.112.0.0/12")
			if tc.change != nil {
				tc.change(&in)
			}
			r := newRouter(t, n, nil)
			before := n.dump()
			err := n.host.Do(func() error {
				if tc.within != nil {
					if err := tc.within(); err != nil {
						return fmt.Errorf("the test cannot be: %w", err)
					}
				}
				return r.Prepare(in)
			})
			if after := n.dump(); after != before {
				t.Errorf("to prepare has changed\n%s", difference(before, after))
			}
			if tc.code == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if f := fault.From(err); f == nil || f.Code != tc.code || f.Next == "" && tc.code != fault.CodeConfig || !strings.Contains(err.Error()+f.Next, tc.says) {
				t.Errorf("refused with %v", err)
			}
		})
	}
}

// From an empty machine to a mesh and back: what others have stays byte for byte.
func TestRoutingLeavesTheMachineAsItWas(t *testing.T) {
	n := alone(t)
	n.populate()
	before := n.dump()
	r := newRouter(t, n, nil)
	in := input()
	if err := n.host.Do(func() error { return r.Prepare(in) }); err != nil {
		t.Fatal(err)
	}
	tun := openTunnel(t, n.host)
	r.start()
	r.to(in)
	for line := range strings.Lines(difference(before, n.dump())) {
		if strings.HasPrefix(line, "- ") {
			t.Errorf("gone: %s", line)
		}
	}
	in.Members = in.Members[:1]
	r.to(in)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := tun.file.Close(); err != nil {
		t.Fatal(err)
	}
	if after := n.dump(); after != before {
		t.Errorf("the machine is not as it was:\n%s", difference(before, after))
	}
}

// What somebody takes away while it runs is put back, and nothing of others with it.
func TestRoutingPutsBackWhatIsTakenAway(t *testing.T) {
	n := alone(t)
	n.run("", "ip", "link", "set", "lo", "up")
	openTunnel(t, n.host)
	r := newRouter(t, n, nil)
	in := input()
	r.start()
	r.to(in)
	n.run(foreign, "nft", "-f", "-")
	for i, args := range []string{
		"nft flush ruleset", "nft delete table inet tombolo_mesh", "nft flush chain inet tombolo_mesh prerouting",
		"nft flush set inet tombolo_mesh routed4", "nft insert rule inet tombolo_mesh forward accept",
		"ip rule del priority 32501", "ip route flush table 180", "ip -6 route flush table 180", "ip addr flush dev tombolo0",
		"ip link set tombolo0 down", "ip link set tombolo0 mtu 1300", "ip link set tombolo0 mtu 600", // without IPv6
		"ip link set tombolo0 name x0",
		"sysctl -q -w net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.tombolo0.src_valid_mark=0 net.ipv4.conf.tombolo0.rp_filter=1",
		"sysctl -q -w net.ipv6.conf.tombolo0.disable_ipv6=1",
		"sysctl -q -w net.ipv4.conf.tombolo0.src_valid_mark=0", // of this nobody is told: not by chance three times
		"sysctl -q -w net.ipv4.conf.tombolo0.src_valid_mark=0",
		"sysctl -q -w net.ipv4.conf.tombolo0.src_valid_mark=0",
	} {
		before := r.Status().Repairs
		n.run("", strings.Fields(args)...)
		runtest.Eventually(t, args, func() bool { return r.Status().Repairs > before })
		r.reach(args, in)
		if text := n.run("", "nft", "list", "ruleset"); i == 0 && strings.Contains(text, "theirs") {
			t.Errorf("what others had is there again:\n%s", text)
		}
		if i == 0 {
			n.run(foreign, "nft", "-f", "-")
		}
	}
	if text := n.run("", "nft", "list", "ruleset"); !strings.Contains(text, "table inet theirs") || !strings.Contains(text, "KUBE-SERVICES") {
		t.Errorf("what others have is gone:\n%s", text)
	}
	if !r.Status().Watching {
		t.Error("it does not watch")
	}
}

// routed is a site whose kernel a Routing owns.
func (s *site) routed(change func(*routing.Parts)) *router {
	s.t.Helper()
	r := newRouter(s.t, s.node, change)
	r.start()
	r.to(s.in)
	return r
}

const policyHead = "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n"

// A policy is changed while packets flow: it decides what is new, and each packet of what
// lives. A connection that it forbids is as lost until it is allowed again.
func TestAPolicyChangesUnderTraffic(t *testing.T) {
	s := newSite(t)
	r := s.routed(nil)
	serve(t, s.pod, pod1+":80", "pod")
	atPod := listen(t, s.pod, pod1+":53")
	answer := s.handshake(pod2, pod1, 6000, 80)
	file := filepath.Join(t.TempDir(), "p.yaml")
	load := func(rules string) error {
		t.Helper()
		if err := os.WriteFile(file, []byte(policyHead+rules), 0o600); err != nil {
			t.Fatal(err)
		}
		before := r.Status().Steps
		err := r.Reload([]string{file}, "c1")
		if err == nil {
			runtest.Eventually(t, "the policy", func() bool { return r.Status().Steps > before })
		}
		return err
	}
	seq, acked := uint32(1001), answer.seq+1
	lives := func(what string) {
		t.Helper()
		p := packet{src: answer.dst, dst: answer.src, sport: 6000, dport: 80, flags: ack, seq: seq, payload: what + "\n"}
		seq += uint32(len(p.payload))
		s.tun.send(tcp(p, acked))
		q := s.tun.receive("a connection that lives: "+what, func(q packet) bool { return strings.Contains(q.payload, "pod "+what+"\n") })
		acked = q.seq + uint32(len(q.payload))
	}
	// comes sends from both peers, the one that must not come first.
	comes := func(what, no, yes string) {
		t.Helper()
		s.tun.send(udp(no, pod1, 53, what+" no"))
		s.tun.send(udp(yes, pod1, 53, what+" yes"))
		if got := datagram(t, atPod); got != what+" yes" {
			t.Errorf("%s: %q came", what, got)
		}
	}
	two := "- name: two\n  callers: [m2]\n  allow: [\"10.244.1.0/24:53\", \"10.244.1.0/24:80\"]\n"
	if err := load(two); err != nil {
		t.Fatal(err)
	}
	comes("two", pod3, pod2)
	lives("first")
	if err := load("- name: three\n  callers: [\"spiffe://t/cluster/c1/node/m3\"]\n  allow: [\"10.244.1.0/24:53\"]\n"); err != nil {
		t.Fatal(err)
	}
	// What m2 sent has become a connection of UDP only if it was answered: it was not.
	comes("three", pod2, pod3)
	s.tun.send(tcp(packet{src: answer.dst, dst: answer.src, sport: 6000, dport: 80, flags: ack, seq: seq, payload: "must not come\n"}, acked))
	if err := load("- name: bad\n  uids: [0]\n  allow: [\"10.244.1.0/24\"]\n"); !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), file+":5:") {
		t.Errorf("a bad one: %v", err)
	}
	comes("still three", pod2, pod3)
	if st := r.Status(); st.Policy.Fault == nil || !st.InForce {
		t.Errorf("status %+v", st)
	}
	if err := load(two); err != nil {
		t.Fatal(err)
	}
	lives("second") // had the one before come, this were a repetition
	if r.log.Len() > 0 && strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("log:\n%s", r.log)
	}
}

// With bypass both directions take one way, through all changes of a peer's health.
func TestRoutingBypassesBothWays(t *testing.T) {
	s := newSite(t)
	s.in.Options.Bypass = true
	r := s.routed(nil)
	serve(t, s.world, pod2+":80", "clear")
	serve(t, s.pod, pod1+":80", "pod")
	health := func(h topology.Health) {
		t.Helper()
		s.in.Health = map[string]topology.Health{"m2": h}
		r.to(s.in)
	}
	health(topology.Health{Down: true})
	out, back := s.connect(s.pod, pod2+":80", ""), s.connect(s.world, pod1+":80", pod2)
	health(topology.Health{})
	for conn, want := range map[net.Conn]string{out: "clear later", back: "pod later"} {
		if answer, err := ask(conn, "later"); answer != want {
			t.Errorf("%q, %v, want %q", answer, err, want)
		}
	}
	begin(t, s.pod, pod2+":81")
	s.tun.receive("a new connection", to(pod2, 81))
	answer := s.handshake(pod2, pod1, 6000, 80)
	health(topology.Health{Down: true})
	s.tun.send(tcp(packet{src: answer.dst, dst: answer.src, sport: 6000, dport: 80, flags: ack, seq: 1001, payload: "hello\n"}, answer.seq+1))
	s.tun.receive("the answer by the mesh", func(q packet) bool { return q.dport == 6000 && q.payload == "pod hello\n" })
	conn := s.connect(s.pod, pod2+":80", "")
	if answer, err := ask(conn, "new"); answer != "clear new" {
		t.Errorf("a new connection: %q, %v", answer, err)
	}
}

// What a peer is sent is explained by what the kernel has.
func TestRoutingExplains(t *testing.T) {
	s := newSite(t)
	r := s.routed(nil)
	for to, says := range map[string]string{
		pod2: "peer  (m2)", overlay2: "set peers4", "8.8.8.8": "in clear", "fd00:0:0:2::3": "peer  (m3)", "100.112.0.1": "own address",
	} {
		e, err := r.Explain(context.Background(), netip.MustParseAddr(to))
		if err != nil || !strings.Contains(e.String(), says) || len(e.Differs) != 0 {
			t.Errorf("%s: %v\n%s", to, err, e)
		}
	}
}

// This machine's own facts are read where it is.
func TestLocalFactsOfAMachine(t *testing.T) {
	n := alone(t)
	n.populate()
	openTunnel(t, n.host)
	for _, c := range []string{
		"addr add 100.112.0.1/32 dev " + kerneltest.Link, "route add default metric 9 nexthop via 192.0.2.7 dev eth0 nexthop via 192.0.2.8 dev eth0",
		"route add default metric 10 via inet6 2001:db8::9 dev eth0", "route add default via 192.0.2.66 table 66", "route add unreachable default metric 99",
	} {
		n.run("", append([]string{"ip"}, strings.Fields(c)...)...)
	}
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 192.0.2.53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got topology.Local
	err := n.host.Do(func() (err error) {
		got, err = routing.Around{Link: kerneltest.Link, Resolvers: []string{file}}.Local()
		return err
	})
	want := "{[192.0.2.2 2001:db8::2] [192.0.2.53] [192.0.2.1 192.0.2.7 192.0.2.8 2001:db8::1 2001:db8::9] [192.0.2.2 2001:db8::2] [192.0.2.0/24 2001:db8::/64] []}"
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
}

// A thousand peers are a few transactions, and one that comes is one.
func TestRoutingOfALargeMesh(t *testing.T) {
	n := alone(t)
	openTunnel(t, n.host)
	k := newNode(t, n.host).kernel
	r := newRouter(t, n, func(p *routing.Parts) { p.Kernel = k })
	in := input()
	for i := range 1000 {
		in.Members = append(in.Members, member.Facts{
			ID: fmt.Sprintf("p%04d", i), Key: member.Key{1, byte(i >> 8), byte(i)},
			Overlay4: netip.AddrFrom4([4]byte{100, 113, byte(i >> 8), byte(i)}), Overlay6: netip.AddrFrom16([16]byte{0: 0xfd, 7: 2, 13: 1, 14: byte(i >> 8), 15: byte(i)}),
			Ranges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)},
		})
	}
	r.start()
	whole := in
	whole.Members = in.Members[:len(in.Members)-1]
	r.to(whole)
	first := r.Status()
	r.to(in)
	last := r.Status()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if steps := last.Steps - first.Steps; steps != 3 || last.Applied != first.Applied+1 || last.Repairs != 0 {
		t.Errorf("one more: %d steps in %d changes, %d repairs", steps, last.Applied-first.Applied, last.Repairs)
	}
	if sent := k.Sent(); sent.Transactions > 8 || sent.Ranges > 3*1003 {
		t.Errorf("all of it: %+v", sent)
	}
}
