// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Watch says when something of ours may have changed in the kernel: a ruleset that
// was flushed by another program leaves the mesh open until it is put back. It belongs
// to the network namespace in which it was made.
type Watch struct {
	names Names
	files []*os.File
	index uint32 // of our link, under whatever name; 0: it was not seen
}

// headerLength is that of a netlink message; its type stands behind its length.
const headerLength = 16

// NewWatch begins to listen: later changes are reported.
func NewWatch(names Names) (*Watch, error) {
	w := &Watch{names: names}
	for _, s := range []struct {
		family int
		groups []int
	}{
		{unix.NETLINK_NETFILTER, []int{unix.NFNLGRP_NFTABLES}},
		{unix.NETLINK_ROUTE, []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE}},
	} {
		file, err := listen(s.family, s.groups)
		if err != nil {
			return nil, errors.Join(unsupported("watching the kernel", err), w.Close())
		}
		w.files = append(w.files, file)
	}
	if link, err := net.InterfaceByName(names.Link); err == nil {
		w.index = uint32(link.Index)
	}
	return w, nil
}

func listen(family int, groups []int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "netlink")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return file, nil
}

// Close ends Filter and Route.
func (w *Watch) Close() error {
	var errs []error
	for _, f := range w.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Filter calls notify for changes of nftables until the context or the watch ends.
// It calls too often rather than too rarely, also for what we have done ourselves.
func (w *Watch) Filter(ctx context.Context, notify func()) error {
	return w.follow(ctx, w.files[0], w.names.inFilter, notify)
}

// Route does the same for links, addresses, routes and rules.
func (w *Watch) Route(ctx context.Context, notify func()) error {
	return w.follow(ctx, w.files[1], w.inRoute, notify)
}

// inFilter reports whether a message about nftables may speak of our table.
func (n Names) inFilter(_ uint16, body []byte) bool {
	return bytes.Contains(body, append([]byte(n.Filter), 0))
}

// inRoute reports whether another message may speak of what is ours. Only Route calls it.
func (w *Watch) inRoute(kind uint16, body []byte) bool {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK: // struct ifinfomsg: the index is its second word
		if len(body) < 8 {
			return false
		}
		index := binary.NativeEndian.Uint32(body[4:])
		if bytes.Contains(body, append([]byte(w.names.Link), 0)) {
			w.index = index
			return true
		}
		return index == w.index // it is ours, and has another name now
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE: // struct rtmsg: the protocol is its sixth byte
		return len(body) > 5 && body[5] == w.names.Protocol
	}
	return true
}

func (w *Watch) follow(ctx context.Context, file *os.File, ours func(kind uint16, body []byte) bool,
	notify func()) error {
	stop := context.AfterFunc(ctx, func() { file.Close() })
	defer stop()
	buffer := make([]byte, 64<<10)
	for {
		n, err := file.Read(buffer)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, unix.ENOBUFS): // something was lost: it may have been ours
			notify()
			continue
		case err != nil:
			return reading("changes of the kernel", err)
		}
		if among(buffer[:n], ours) {
			notify()
		}
	}
}

// among looks through the messages of a datagram.
func among(b []byte, ours func(kind uint16, body []byte) bool) bool {
	for len(b) >= headerLength {
		length := int(binary.NativeEndian.Uint32(b))
		if length < headerLength || length > len(b) {
			return false
		}
		if ours(binary.NativeEndian.Uint16(b[4:]), b[headerLength:length]) {
			return true
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return false
}
