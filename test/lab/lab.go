// SPDX-License-Identifier: Apache-2.0

package lab

import (
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
)

// tempRoot is used where os.TempDir is long: unix sockets below a lab's
// directory must fit into 107 bytes.
const tempRoot = "/tmp"

// maxTempRoot is the longest temporary directory that leaves room for our own
// name and for "run/clusters/<cluster>/konnectivity.sock" below it.
const maxTempRoot = 16

// namePattern is what hosts and links may be called: part of a file name and,
// for links, within the kernel's 15 bytes.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,14}$`)

// Lab owns namespaces, links, processes and a directory, and removes them all
// on Close. Its methods may be called from several goroutines.
type Lab struct {
	name string // prefix, owner and a random word: the first part of all names

	mu        sync.Mutex
	closed    bool
	links     int // made so far
	hosts     map[string]*Host
	processes map[*Process]struct{}
	listeners map[io.Closer]struct{}
	dir       string
}

// Host is one machine of the lab: a network namespace.
type Host struct {
	lab  *Lab
	name string
	path string
	ns   netns.NsHandle
	link *netlink.Handle
}

// New returns an empty lab. The word is part of the names of what it makes.
// It removes what dead runs left behind first.
func New(word string) (*Lab, error) {
	if !namePattern.MatchString(word) {
		return nil, fmt.Errorf("lab name %q: want a lower-case word of at most 15 letters, digits or -", word)
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
	return &Lab{
		name:      prefix + me.String() + "-" + hex.EncodeToString(random) + "-" + word,
		hosts:     map[string]*Host{},
		processes: map[*Process]struct{}{},
		listeners: map[io.Closer]struct{}{},
	}, nil
}

// Dir returns a directory that belongs to the lab and goes with it. It is made
// on first use, short enough for unix sockets, and others may pass through it
// but not list it (processes of the lab may run as other users).
func (l *Lab) Dir() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return "", errClosed
	}
	if l.dir != "" {
		return l.dir, nil
	}
	root := os.TempDir()
	if len(root) > maxTempRoot {
		root = tempRoot
	}
	dir := filepath.Join(root, l.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the lab's directory: %w (set TMPDIR to a writable place)", err)
	}
	l.dir = dir
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", err
	}
	return dir, nil
}

var errClosed = errors.New("the lab is closed")

// Host adds a machine that does not forward.
func (l *Lab) Host(name string) (*Host, error) {
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("host name %q: want a lower-case word of at most 15 letters, digits or -", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.hosts[name] != nil {
		return nil, fmt.Errorf("host %s exists already in this lab", name)
	}
	h := &Host{lab: l, name: name, path: filepath.Join(netnsDir, l.name+"-"+name)}
	var err error
	if h.ns, err = newNamespace(h.path); err != nil {
		return nil, err
	}
	l.hosts[name] = h
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
func (l *Lab) Router(name string) (*Host, error) {
	h, err := l.Host(name)
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
func (l *Lab) Here() *Host {
	return &Host{lab: l, name: "this machine", ns: netns.None()}
}

// Hosts returns how many namespaces the lab has.
func (l *Lab) Hosts() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.hosts)
}

// Name is the host's name within its lab.
func (h *Host) Name() string { return h.name }

// Namespace is the name under /run/netns, for `ip netns exec`.
func (h *Host) Namespace() string { return filepath.Base(h.path) }

// Close kills the lab's processes, waits for them, closes its listeners and
// removes its namespaces and its directory. It may be called again.
func (l *Lab) Close() error {
	l.mu.Lock()
	l.closed = true
	processes := l.processes
	hosts := l.hosts
	listeners := l.listeners
	dir := l.dir
	l.processes, l.hosts, l.listeners, l.dir = nil, nil, nil, ""
	l.mu.Unlock()

	var errs []error
	for p := range processes {
		p.Kill()
	}
	for p := range processes {
		<-p.Done()
	}
	for c := range listeners {
		c.Close() // closed twice is no error worth telling
	}
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
