// SPDX-License-Identifier: Apache-2.0

// Package kernel reads and changes what has our names in the kernel: the settings of
// our link, its addresses, routes and rules of our protocol, and our table of nftables.
// It touches nothing else, decides nothing (package topology does), and does not make
// the link, which is the tunnel's.
package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Protocol marks routes and rules as ours (rtm_protocol, FRA_PROTOCOL): a number that
// nobody else has in rt_protos.
const Protocol = 180

// Names are those of our objects in the kernel. Two meshes on one machine differ in all of them but for
// the protocol. Nothing bears an empty one.
type Names struct {
	Link     string
	Filter   string // table of nftables
	Table    int    // of routes; its number is that of the mesh's routes and rules elsewhere too
	Protocol uint8  // of routes and rules
	// Former are names that count no longer: of links that bear one only the kernel's WireGuard
	// is ours. One of a process ended with it, so what has such a name now belongs to another program.
	Former bool
	// Command is who has them, such as "tombolo route"; empty: the mesh.
	Command string
}

// user is who has them, in faults.
func (n Names) user() string {
	if n.Command != "" {
		return "'" + n.Command + "'"
	}
	return "the mesh"
}

// taken is the code of what another program has. The mesh has one of its own, which is older than its other users.
func (n Names) taken() fault.Code {
	if n.Command != "" {
		return fault.CodeKernelClash
	}
	return fault.CodeClash
}

// setting is what hints call the setting of a name.
func (n Names) setting(name string) string {
	if n.Command != "" {
		return name
	}
	return "mesh." + name
}

// elsewhere is what hints say of a route outside of our table: only the mesh can choose what it is for.
func (n Names) elsewhere() string {
	if n.Command != "" {
		return ""
	}
	return "choose another mesh.overlay4, or "
}

// Sent counts what was sent to nftables.
type Sent struct {
	Transactions, Messages, Ranges int
}

// Kernel belongs to one goroutine, and to the network namespace in which it was made.
type Kernel struct {
	names Names
	// former are names whose bearers are ours too, and go: they are no clash.
	former []Names
	route  *netlink.Handle
	nft    *nftables.Conn
	sent   Sent
	most   int // ranges of a transaction
	index  int // of our link, when it was last seen; 0: it was not
}

// New opens the sockets to the kernel. It changes nothing.
func New(names Names) (*Kernel, error) {
	route, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, unsupported("opening netlink", err)
	}
	k := &Kernel{names: names, route: route, most: kernelRanges}
	if names.Filter == "" { // a container may have no nftables
		return k, nil
	}
	if k.nft, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(widen)); err != nil {
		route.Close()
		return nil, unsupported("opening nftables", err)
	}
	return k, nil
}

// Overlook has Check take what has former names for no clash: it is ours, and is removed.
func (k *Kernel) Overlook(former []Names) { k.former = former }

// widen makes room for large transactions and their answers, as far as the kernel
// allows; what does not fit is sent in several.
func widen[C interface {
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}](c C) error {
	return errors.Join(c.SetReadBuffer(kernelBuffer), c.SetWriteBuffer(kernelBuffer))
}

// Close closes the sockets. What was applied stays.
func (k *Kernel) Close() error {
	k.route.Close()
	if k.nft == nil {
		return nil
	}
	return k.nft.CloseLasting()
}

// Sent returns what was sent to nftables so far.
func (k *Kernel) Sent() Sent { return k.sent }

func (k *Kernel) table() *nftables.Table {
	return &nftables.Table{Name: k.names.Filter, Family: nftables.TableFamilyINet}
}

// again opens the socket to nftables again after an error, for answers may be left in
// it. Where there was no room, the next transactions are smaller.
func (k *Kernel) again(why error) {
	if crowded(why) {
		k.most = max(k.most/2, 1)
	}
	nft, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(widen))
	if err != nil {
		return // the old one serves as long as it can
	}
	k.nft.CloseLasting()
	k.nft = nft
}

// crowded reports whether the buffers of a socket were too small for a transaction.
func crowded(err error) bool { return errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EMSGSIZE) }

// unsupported is the fault of a kernel, or of rights, that do not suffice.
func unsupported(what string, err error) *fault.Fault {
	f := fault.New(fault.CodeUnsupported, what).Because(err)
	if denied(err) {
		return f.Hint(needsRights)
	}
	return f.Hint("load the module nf_tables and those of its expressions (ct, fib, nat), or use a kernel that has them")
}

func denied(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS)
}

// failed is the fault of a step.
func (n Names) failed(what fmt.Stringer, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST):
		return fault.New(n.taken(), what.String()).Whyf("another program has made it: %v", err).
			Hint("remove it, or choose another name or number in the configuration of %s", n.user())
	case errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV):
		return fault.New(fault.CodeNotFound, what.String()).
			Whyf("the link is not there: the tunnel is gone, or was not made yet").
			Hint("if that lasts, start %s again: it makes a new link", n.user())
	case denied(err) || errors.Is(err, unix.EOPNOTSUPP):
		return unsupported(what.String(), err)
	}
	return refused(what.String(), err)
}

// missing reports whether an error means that what was to be removed is not there.
func missing(err error) bool {
	for _, e := range []error{unix.ESRCH, unix.ENOENT, unix.ENODEV, unix.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, new(netlink.LinkNotFoundError))
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefix reads a network; nil is the default route of a family.
func prefix(n *net.IPNet, family int) netip.Prefix {
	if n == nil {
		if family == netlink.FAMILY_V4 {
			return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	bits, _ := n.Mask.Size()
	a, _ := netip.AddrFromSlice(n.IP)
	if family == netlink.FAMILY_V4 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits)
}
