// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Check says why a state cannot be applied here: what the kernel lacks, or what
// something else uses already. It changes nothing. Without a fault nothing stands
// in the way.
func (k *Kernel) Check(want plan.State) []*fault.Fault {
	if f := writable(want); f != nil {
		return []*fault.Fault{f}
	}
	var out []*fault.Fault
	if k.nft != nil {
		chains, theirs, err := k.chains()
		if err != nil {
			return []*fault.Fault{fault.From(err)}
		}
		out = k.contested(chains, want)
		if theirs {
			out = append(out, k.foreignTable())
		} else if err := k.rehearse(want); err != nil {
			return []*fault.Fault{err}
		}
	}
	var rules []netlink.Rule
	if err := whole(func() (err error) { rules, err = k.allRules(); return err }); err != nil {
		return []*fault.Fault{fault.From(err)}
	}
	for _, r := range rules {
		if !k.any(func(n Names) bool { return n.rule(r) }) {
			out = append(out, k.ruleClashes(r, want)...)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		var routes []netlink.Route
		if err := whole(func() (err error) { routes, err = k.allRoutes(family); return err }); err != nil {
			return []*fault.Fault{fault.From(err)}
		}
		out = append(out, k.routeClashes(routes, family, want)...)
	}
	var links []netlink.Link
	if err := whole(func() (err error) { links, err = k.route.LinkList(); return err }); err != nil {
		return []*fault.Fault{fault.From(reading("links", err))}
	}
	out = append(out, k.linkClashes(links)...)
	if k.nft == nil {
		return out
	}
	return append(out, k.others(links, want)...)
}

// writable says why sysctls cannot be set: whether they may be, and whether the
// kernel has both families at all. Each link has those of the link all.
func writable(want plan.State) *fault.Fault {
	for _, s := range want.Sysctls {
		path := strings.Replace(s.Path, "/"+s.Link+"/", "/all/", 1)
		file, err := openSetting(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fault.New(fault.CodeUnsupported, "sysctl "+path).Because(err).
				Hint("the kernel was started without this family: see ipv6.disable on its command line, " +
					"and that /proc/sys is mounted")
		case err != nil:
			return unsupported("sysctl "+path, err)
		}
		file.Close()
	}
	return nil
}

func (k *Kernel) clash(what, why string, args ...any) *fault.Fault {
	return fault.New(k.names.taken(), what).Whyf(why, args...)
}

func (k *Kernel) foreignTable() *fault.Fault {
	return k.clash("table inet "+k.names.Filter+" of nftables", "another program has made it: it lacks the chain %s",
		marker).
		Hint("look at it with nft list table inet %s; remove it with nft delete table inet %s if nobody needs it",
			k.names.Filter, k.names.Filter)
}

// rehearse sends our chains under another name in a transaction that cannot come
// into force, since it ends with what is not possible: the kernel reports whether
// it knows all that they need.
func (k *Kernel) rehearse(want plan.State) *fault.Fault {
	for _, table := range want.Tables {
		steps := plan.Diff(plan.State{}, plan.State{Tables: []plan.Table{bare(table, k.names.Filter+"_rehearsal")}})
		t := transaction{k: k, table: &nftables.Table{Name: k.names.Filter + "_rehearsal", Family: nftables.TableFamilyINet},
			heads: map[string]plan.Chain{}}
		if err := t.all(steps); err != nil {
			return fault.New(fault.CodeInternal, "making the rules of nftables").Because(err)
		}
		k.nft.DelChain(&nftables.Chain{Name: "there-is-none", Table: t.table})
		refused := refusals(t.commit())
		switch {
		case len(refused) == 1 && errors.Is(refused[0], unix.ENOENT): // what had to fail
		case len(refused) == 0:
			return fault.New(fault.CodeInternal, "a rehearsal has come into force")
		default:
			return unsupported("the kernel refuses our rules of nftables", fold(errors.Join(refused...)))
		}
	}
	return nil
}

// bare is a table without the ranges of its sets.
func bare(t plan.Table, name string) plan.Table {
	t.Name = name
	t.Sets = slices.Clone(t.Sets)
	for i := range t.Sets {
		t.Sets[i].Ranges = nil
	}
	return t
}

// ruleClashes reports whether a foreign rule takes our bits of a mark for its
// own, leads into our table, or has our priority.
func (k *Kernel) ruleClashes(r netlink.Rule, want plan.State) []*fault.Fault {
	text := ruleText(r)
	var bits uint32
	for _, w := range want.Rules {
		bits |= w.Mark
	}
	if r.Mark&maskOf(r)&bits != 0 {
		return []*fault.Fault{k.clash(text, "it looks at bits of the mark that the mesh uses, %#x", bits).
			Hint("choose other bits in mesh.marks, or remove it with ip rule")}
	}
	for _, w := range want.Rules {
		if r.Table == w.Table && !shared(w.Table) {
			return []*fault.Fault{k.clash(text, "it leads into table %d, which %s uses", w.Table, k.names.user()).
				Hint("choose another %s, or remove it with ip rule", k.names.setting("table"))}
		}
		if r.Priority == w.Priority {
			return []*fault.Fault{k.clash(text, "it has priority %d, which %s uses", w.Priority, k.names.user()).
				Hint("choose another %s, or remove it with ip rule", k.names.setting("rule"))}
		}
	}
	return nil
}

// shared reports whether a table is the machine's own: default, main or local.
func shared(table int) bool { return table >= unix.RT_TABLE_DEFAULT && table <= unix.RT_TABLE_LOCAL }

func maskOf(r netlink.Rule) uint32 {
	switch {
	case r.Mask != nil:
		return *r.Mask
	case r.Mark != 0:
		return ^uint32(0)
	}
	return 0
}

// routeClashes finds routes of others in our table, and such in the way of ours elsewhere.
func (k *Kernel) routeClashes(routes []netlink.Route, family int, want plan.State) []*fault.Fault {
	tables := map[int]bool{}
	for _, r := range want.Rules {
		tables[r.Table] = !shared(r.Table)
	}
	var out []*fault.Fault
	for _, r := range routes {
		have := k.routeOf(r, family)
		linked := k.any(func(n Names) bool { return have.Link != "" && have.Link == n.Link })
		if linked && (r.Protocol == unix.RTPROT_KERNEL || uint8(r.Protocol) == k.names.Protocol) {
			continue // ours, or the kernel's own for our addresses
		}
		if (have.Link == "" || have.Via.IsValid()) && k.any(func(n Names) bool { return n.route(r, false) }) {
			continue
		}
		same := func(w plan.Route) bool { return w.Table == have.Table && w.To == have.To && w.Metric == have.Metric }
		switch {
		case tables[have.Table]: // also of another mesh, by its link
			out = append(out, k.clash(routeText(r, family, k.linkName), "it is in table %d, which %s uses", have.Table,
				k.names.user()).
				Hint("choose another %s, or remove it with ip route", k.names.setting("table")))
		case slices.ContainsFunc(want.Routes, same):
			out = append(out, k.clash(routeText(r, family, k.linkName), "it stands where %s needs a route", k.names.user()).
				Hint("%sremove it with ip route", k.names.elsewhere()))
		}
	}
	return out
}

// tunnels reports whether a link may be a tunnel's. One of another type bears our name
// by chance, and is not ours; nor is one of the kernel's engines that another program has made.
func tunnels(l netlink.Link) bool {
	if staysAlone(l) {
		return l.Attrs().Alias == plan.Alias
	}
	return slices.Contains([]string{"tuntap", "tun"}, l.Type())
}

// staysAlone reports whether a link is of an engine of the kernel, which needs no program.
func staysAlone(l netlink.Link) bool { return slices.Contains([]string{"wireguard", "xfrm"}, l.Type()) }

// Beside is the link of WireGuard beside that of IPsec. Nothing is routed into it: what is for its peers is diverted
// from the mesh's link to it.
func Beside(link string) string { return link + "w" }

// InUse reports whether a program has the link open now, or the one beside it. One of userspace that
// stays without a program does not come from us, and of the kernel's engines alone nobody can tell.
func (k *Kernel) InUse() (bool, error) {
	used, kind, err := k.open(k.names.Link)
	if err != nil || kind != "xfrm" || k.names.Former {
		return used, err
	}
	used, _, err = k.open(Beside(k.names.Link))
	return used, err
}

// open reports whether a program has a TUN open; of what is not there the kind is empty.
func (k *Kernel) open(name string) (used bool, kind string, err error) {
	link, err := k.route.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, "", nil
	}
	if err != nil {
		return false, "", reading("link "+name, err)
	}
	tun, is := link.(*netlink.Tuntap)
	return is && tun.NonPersist, link.Type(), nil
}

// linkClashes refuses a link of our name that no tunnel makes.
func (k *Kernel) linkClashes(links []netlink.Link) []*fault.Fault {
	for _, l := range links {
		if l.Attrs().Name == k.names.Link && !tunnels(l) {
			is := k.clash("link "+k.names.Link, "it is there, of type %s, and no tunnel of ours", l.Type())
			if l.Type() == "device" || l.Attrs().Flags&net.FlagLoopback != 0 {
				return []*fault.Fault{is.Hint("choose another %s", k.names.setting("link"))}
			}
			return []*fault.Fault{is.Hint("choose another %s, or remove it with ip link delete %s", k.names.setting("link"),
				k.names.Link)}
		}
	}
	return nil
}

// user is a program that uses bits of the mark, and what betrays it.
type user struct {
	name   string
	mask   uint32
	links  string // what names of its links begin with
	chains string // what names of its chains of nftables begin with
}

// users are those that are found on nodes, by their defaults.
func users() []user {
	return []user{
		{"Calico", 0xffff0000, "cali", "cali-"},
		{"Cilium", 0x00000f00, "cilium_", "CILIUM_"},
		{"kube-proxy", 0x0000c000, "kube-ipvs", "KUBE-"},
		{"Flannel", 0x00004000, "flannel", "FLANNEL-"},
		{"Tailscale", 0x00ff0000, "tailscale", "ts-"},
		{"KubeSpan", 0x00000060, "kubespan", "kubespan_"},
	}
}

// others finds programs whose marks ours would meet.
func (k *Kernel) others(links []netlink.Link, want plan.State) []*fault.Fault {
	var mask uint32
	for _, r := range want.Rules {
		mask |= r.Mask
	}
	chains, err := k.nft.ListChains()
	if err != nil {
		return []*fault.Fault{fault.From(reading("chains of nftables", err))}
	}
	var out []*fault.Fault
	for _, u := range users() {
		if u.mask&mask == 0 {
			continue
		}
		at := slices.IndexFunc(links, func(l netlink.Link) bool { return strings.HasPrefix(l.Attrs().Name, u.links) })
		sign := ""
		if at >= 0 {
			sign = "link " + links[at].Attrs().Name
		} else if at := slices.IndexFunc(chains,
			func(c *nftables.Chain) bool { return strings.HasPrefix(c.Name, u.chains) }); at >= 0 {
			sign = "chain " + chains[at].Name
		} else {
			continue
		}
		out = append(out, k.clash(fmt.Sprintf("mark mask %#x", mask), "%s is here (%s) and uses %#x", u.name, sign, u.mask).
			Hint("choose other bits in mesh.marks: 0x60 is free beside Calico, Cilium, kube-proxy and Flannel"))
	}
	return out
}
