// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// state is what is changed in the kernel for one tunnel.
type state interface {
	Check(want plan.State) []*fault.Fault
	Elsewhere() ([]plan.Route, error)
	Observe() (plan.State, error)
	Apply(steps []plan.Step) error
	Close() error
}

// host is this machine.
type host struct {
	openKernel   func(kernel.Names) (state, error)
	makeTun      func(name string) error // one that stays without a program; one that is there is kept
	answers      func(ctx context.Context, to netip.Addr) bool
	hasIPv6      func() bool
	unprivileged func() (user, group string)
	forward      func(families []plan.Family) (undo func() error, err error)
	lookup       func(ctx context.Context, network, host string) ([]netip.Addr, error)
	version      func(ctx context.Context, program string) (string, error)
	around       func(ours []string) []network.Part // networks of this machine, without those of our links
}

func newHost() host {
	return host{
		openKernel: func(n kernel.Names) (state, error) { return kernel.New(n) },
		makeTun:    kernel.MakeTun, answers: answers, hasIPv6: hasIPv6, unprivileged: unprivileged, forward: forward,
		lookup: net.DefaultResolver.LookupNetIP, version: version, around: around,
	}
}

// filterOf is the name of a link's table of nftables.
func filterOf(link string) string { return strings.NewReplacer("-", "_", ".", "_").Replace(link) }

// names are those of a tunnel in the kernel.
func names(t network.Tunnel) kernel.Names {
	return kernel.Names{Link: t.Link, Filter: t.Filter, Table: t.Table, Protocol: kernel.Protocol, Command: "tombolo vpn"}
}

// apply makes the kernel as it is wanted: also what a killed process left is taken over.
func apply(k state, want plan.State) error {
	have, err := k.Observe()
	if err != nil {
		return err
	}
	return k.Apply(plan.Diff(have, want))
}

// restore puts back what somebody else has removed from the kernel.
func restore(k state, t network.Tunnel, log *slog.Logger) {
	have, err := k.Observe()
	if err == nil {
		steps := plan.Diff(have, t.State())
		if len(steps) == 0 {
			return
		}
		log.Warn("what a tunnel needs in the kernel was changed, and is put back", "link", t.Link, "steps", len(steps))
		err = k.Apply(steps)
	}
	if err != nil {
		f := fault.From(err)
		log.Error("what a tunnel needs in the kernel cannot be put back", "link", t.Link, telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Error())
	}
}

// hasIPv6 reports whether a socket of IPv6 can be bound.
func hasIPv6() bool {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	ln.Close()
	return true
}

// unprivileged is whom OpenVPN becomes. Who is not root stays who it is.
func unprivileged() (name, group string) {
	if os.Geteuid() != 0 {
		return "", ""
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return "", ""
	}
	g, err := user.LookupGroupId(nobody.Gid)
	if err != nil {
		return "", ""
	}
	return nobody.Username, g.Name
}

// version asks the program which one it is.
func version(ctx context.Context, program string) (string, error) {
	f := fault.New(fault.CodeUnsupported, "OpenVPN")
	out, err := exec.CommandContext(ctx, program, "--version").Output() // it ends with 1 when it prints that
	if errors.As(err, new(*exec.ExitError)) {
		err = nil
	}
	if err != nil {
		return "", f.Because(err).Hint("apt-get install openvpn, or name the program with program")
	}
	v, ok := openvpn.Version(string(out))
	if !ok {
		return v, f.Whyf("%s is version %q, and 2.6 or newer is needed", program, v).Hint("install a newer one")
	}
	return v, nil
}

// forward has the kernel forward packets, and says how to undo it. Each network namespace has settings of its own.
func forward(families []plan.Family) (undo func() error, err error) {
	undo = func() error { return nil }
	for _, f := range families {
		path := map[plan.Family]string{plan.IPv4: "/proc/sys/net/ipv4/ip_forward",
			plan.IPv6: "/proc/sys/net/ipv6/conf/all/forwarding"}[f]
		was, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(was)) == "1" {
			continue
		}
		if err == nil {
			err = os.WriteFile(path, []byte("1"), 0o644)
		}
		if err != nil {
			return undo, fault.New(fault.CodeUnsupported, "packets are not forwarded here, and cannot be").Because(err).
				Hint("set %s to 1: on a machine with sysctl, in a pod with a privileged init container, as 'tombolo vpn "+
					"manifest client' has it", path)
		}
		before := undo
		undo = func() error { return errors.Join(before(), os.WriteFile(path, was, 0o644)) }
	}
	return undo, nil
}

// around are the networks in which this machine has addresses, without those of our own links.
func around(ours []string) (out []network.Part) {
	links, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil || slices.Contains(ours, l.Name) {
			continue
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
				continue
			}
			out = append(out, network.Part{What: "which this machine has at " + l.Name, Range: p.Masked()})
		}
	}
	return out
}

// apart refuses ranges that are those of this machine: it would no longer reach what is there.
func (h host) apart(ours []string, parts []network.Part) error {
	for _, own := range h.around(ours) {
		for _, p := range parts {
			if p.Range.Overlaps(own.Range) {
				return fault.Newf(fault.CodeConfig, "%s, and %s, overlap", p, own).
					Whyf("this machine would no longer reach its own network").
					Hint("reach the range by other addresses with 'as', on both ends; or write another transfer")
			}
		}
	}
	return nil
}
