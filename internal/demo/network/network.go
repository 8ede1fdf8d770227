// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// tempRoot is used where os.TempDir is long: unix sockets below a network's
// directory must fit into 107 bytes.
const tempRoot = "/tmp"

// maxTempRoot is the longest temporary directory that leaves room for our own
// name and for "run/clusters/<cluster>/konnectivity.sock" below it.
const maxTempRoot = 16

// namePattern is what hosts and links may be called: part of a file name and,
// for links, within the kernel's 15 bytes.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,14}$`)

// Network owns namespaces, links, processes and a directory, and removes them all
// on Close. Its methods may be called from several goroutines.
type Network struct {
	name  string // prefix, owner and a random word: the first part of all names
	ctx   context.Context
	group *run.Group // of what runs until Close

	mu        sync.Mutex
	closed    bool
	links     int // made so far
	hosts     map[string]*Host
	processes map[*Process]struct{}
	listeners map[io.Closer]struct{}
	dir       string
}

// Host is one machine of a network: a network namespace.
type Host struct {
	net  *Network
	name string
	path string
	ns   netns.NsHandle
	link *netlink.Handle
}

// New returns an empty network. The word is part of the names of what it makes.
// It removes what dead runs left behind first.
func New(ctx context.Context, word string) (*Network, error) {
	if !namePattern.MatchString(word) {
		return nil, fmt.Errorf("network name %q: want a lower-case word of at most 15 letters, digits or -", word)
	}
	if _, err := Sweep(); err != nil {
		return nil, fmt.Errorf("removing what an earlier run left: %w", err)
	}
	me, err := self()
	if err != nil {
		return nil, err
	}
	random := make([]byte, 3)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	return &Network{
		ctx:       ctx,
		group:     run.NewGroup(ctx),
		name:      prefix + me.String() + "-" + hex.EncodeToString(random) + "-" + word,
		hosts:     map[string]*Host{},
		processes: map[*Process]struct{}{},
		listeners: map[io.Closer]struct{}{},
	}, nil
}

// Dir returns a directory that belongs to the network and goes with it. It is made
// on first use, short enough for unix sockets, and others may pass through it
// but not list it (processes of the network may run as other users).
func (n *Network) Dir() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return "", errClosed
	}
	if n.dir != "" {
		return n.dir, nil
	}
	root := os.TempDir()
	if len(root) > maxTempRoot {
		root = tempRoot
	}
	dir := filepath.Join(root, n.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the network's directory: %w (set TMPDIR to a writable place)", err)
	}
	n.dir = dir
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", err
	}
	return dir, nil
}

var errClosed = errors.New("the network is closed")

// start runs fn until it returns; Close waits for that. Closed, it does nothing.
func (n *Network) start(fn func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.group.Do(func(context.Context) { fn() })
	return true
}

// Keep closes c when the network is closed, or at once if it is.
func (n *Network) Keep(c io.Closer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.Close()
		return
	}
	n.listeners[c] = struct{}{}
}

// drop closes what the network would have closed in the end.
func (n *Network) drop(c io.Closer) {
	n.mu.Lock()
	delete(n.listeners, c)
	n.mu.Unlock()
	_ = c.Close() // a second Close is no error worth reporting
}

// Host adds a machine that does not forward.
func (n *Network) Host(name string) (*Host, error) {
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("host name %q: want a lower-case word of at most 15 letters, digits or -", name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	if n.hosts[name] != nil {
		return nil, fmt.Errorf("host %s exists already in this network", name)
	}
	h := &Host{net: n, name: name, path: filepath.Join(netnsDir, n.name+"-"+name)}
	var err error
	if h.ns, err = newNamespace(n.ctx, h.path); err != nil {
		return nil, err
	}
	n.hosts[name] = h
	if h.link, err = netlink.NewHandleAt(h.ns, netlinkRoute); err != nil {
		return nil, fmt.Errorf("opening netlink in %s: %w", name, err)
	}
	// What we number ourselves is not looked for in use by anybody, not even
	// the link's own address. A machine without IPv6 has no such file.
	if err := h.Sysctl("ipv6/conf/default/accept_dad", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lo, err := h.link.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("finding lo in %s: %w", name, err)
	}
	if err := h.link.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("setting lo of %s up: %w", name, err)
	}
	return h, nil
}

// Router adds a machine that forwards between its links.
func (n *Network) Router(name string) (*Host, error) {
	h, err := n.Host(name)
	if err != nil {
		return nil, err
	}
	if err := h.Sysctl("ipv6/conf/all/forwarding", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return h, h.Sysctl("ipv4/ip_forward", "1")
}

// Here is this machine itself, in the namespace that we run in: for processes
// and sockets only, without root. It cannot be linked or filtered.
func (n *Network) Here() *Host {
	return &Host{net: n, name: "this machine", ns: netns.None()}
}

// Hosts returns how many namespaces the network has.
func (n *Network) Hosts() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.hosts)
}

// Network is what the host belongs to.
func (h *Host) Network() *Network { return h.net }

// Netlink changes links, addresses and routes of the host; nil for Here.
func (h *Host) Netlink() *netlink.Handle { return h.link }

// Name is the host's name within its network.
func (h *Host) Name() string { return h.name }

// Namespace is the name under /run/netns, for `ip netns exec`.
func (h *Host) Namespace() string { return filepath.Base(h.path) }

// Close kills the network's processes, waits for them, closes its listeners and
// removes its namespaces and its directory. It may be called again.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	processes := n.processes
	hosts := n.hosts
	listeners := n.listeners
	dir := n.dir
	n.processes, n.hosts, n.listeners, n.dir = nil, nil, nil, ""
	n.mu.Unlock()

	var errs []error
	for p := range processes {
		p.Kill()
	}
	for p := range processes {
		<-p.Done()
	}
	for c := range listeners {
		c.Close() // a second Close is no error worth reporting
	}
	n.group.Stop()
	errs = append(errs, n.group.Wait())
	for _, h := range hosts {
		if h.link != nil {
			h.link.Close()
		}
		errs = append(errs, h.ns.Close(), removeNamespace(h.path))
	}
	if len(hosts) > 0 {
		// Only succeeds when it is empty; nobody else's names are in it then.
		_ = os.Remove(netnsDir)
	}
	if dir != "" {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}
