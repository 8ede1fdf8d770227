// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// part is something that the kernel needs, and the modules that have it where it is not built in.
type part struct {
	what    string
	modules string
	try     func(*Device) error
}

// parts are tried in this order, each on its own.
var parts = []part{
	{"ESP in UDP over IPv4", "esp4 " + crypto, tryState("192.0.2.1", "192.0.2.2", AES)},
	{"ESP in UDP over IPv6 (Linux 5.8)", "esp6 " + crypto, tryState("2001:db8::1", "2001:db8::2", AES)},
	// Any peer may ask for it.
	{"ChaCha20-Poly1305 for ESP", "chacha20poly1305", tryState("192.0.2.1", "192.0.2.3", ChaCha)},
}

// diverting is what another engine beside IPsec needs.
var diverting = part{"diverting packets from one link to another (clsact, flower, mirred)",
	"sch_ingress cls_flower act_mirred", tryDivert}

// crypto are the modules of AES-256-GCM with the sequence numbers of ESP.
const crypto = "gcm ghash-generic ctr seqiv drbg"

// Able says what the kernel lacks for IPsec, by name and with the command that loads it. It tries in a network
// namespace of its own, which goes with it. Without the right to make one (CAP_SYS_ADMIN, which nothing else here
// needs) it tries in this one, with a link and an id of its own, and removes it all: nothing of this machine is
// changed, but that the kernel loads modules if it can. Beside says that another engine is to carry packets of some
// peers.
func Able(ctx context.Context, beside bool) *fault.Fault {
	lacks, err := able(ctx, beside)
	switch {
	case errors.Is(err, os.ErrPermission):
		return fault.New(fault.CodeUnsupported, "IPsec in the kernel").Because(err).
			Hint("run it as root, or give it CAP_NET_ADMIN")
	case errors.Is(err, errOccupied):
		return fault.From(err)
	case err != nil:
		return fault.New(fault.CodeUnsupported, "IPsec in the kernel").Because(err)
	case len(lacks) == 0:
		return nil
	}
	var what, modules []string
	for _, p := range lacks {
		what, modules = append(what, p.what), append(modules, p.modules)
	}
	return fault.New(fault.CodeUnsupported, "IPsec in the kernel").Whyf("it lacks %s", strings.Join(what, ", ")).
		Hint("load it with modprobe -a %s, or use a kernel that has it, or set mesh.engine to another one: identity and "+
			"peers stay the same", strings.Join(modules, " "))
}

func able(ctx context.Context, beside bool) (lacks []part, err error) {
	runtime.LockOSThread()
	here, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer here.Close()
	// Whatever keeps it from making one (rights, a filter of system calls, a limit), the try is the same here.
	alone := unix.Unshare(unix.CLONE_NEWNET) == nil
	defer func() {
		if alone {
			if back := netns.Set(here); back != nil { // the thread ends with its goroutine, and serves nobody else
				err = errors.Join(err, back)
				return
			}
		}
		runtime.UnlockOSThread()
	}()
	d, err := openTrial(ctx)
	switch {
	case errors.Is(err, os.ErrPermission), errors.Is(err, errOccupied), errors.Is(err, context.Canceled):
		return nil, err
	case errors.Is(err, unix.EOPNOTSUPP):
		return []part{{"links of kind xfrm", "xfrm_interface", nil}}, nil
	case err != nil:
		return []part{{"XFRM", needs, nil}}, nil
	}
	defer func() { err = errors.Join(err, d.Close(false)) }()
	if _, err := d.policies(); err != nil {
		return []part{{"XFRM", needs, nil}}, nil
	}
	all := parts
	if beside {
		all = append(slices.Clone(parts), diverting)
	}
	for _, p := range all {
		if p.try(d) != nil {
			lacks = append(lacks, p)
		}
	}
	return lacks, nil
}

// tryState has a state be made. Nobody sends by it: no policy has the link's id, and the addresses are nobody's (RFC
// 5737, RFC 3849).
func tryState(from, to string, c Cipher) func(*Device) error {
	return func(d *Device) error {
		var key [KeyBytes]byte
		if _, err := rand.Read(key[:]); err != nil {
			return err
		}
		return d.Add(State{Name: Name{netip.MustParseAddr(to), 0x100}, Peer: 1, From: netip.MustParseAddr(from), Cipher: c,
			Key: NewKey(key), FromPort: 4500, ToPort: 4500})
	}
}

// tryDivert has packets be diverted from the link to itself, which nothing is routed into, and which is never up.
func tryDivert(d *Device) error {
	v, err := openDivert(d.s.Link, d.s.Link)
	if err != nil {
		return err
	}
	defer v.Close()
	return v.Away([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")})
}
