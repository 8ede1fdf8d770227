// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// refusal is a start that must fail with a code before anything is changed.
type refusal struct {
	name         string
	make, undo   string // commands on the node's machine, one a line
	set          settings
	within       []string          // what starts the program
	files        map[string]string // in its state directory, with what is in them
	unprivileged bool              // started by a user without rights
	code         string
	exit         int
	says         string
}

// inMounts starts a program after a command in a mount namespace of its own.
func inMounts(command string) []string {
	return []string{"unshare", "--mount", "sh", "-c", command + ` && exec "$@"`, "sh"}
}

func secretIn(file string) settings {
	return settings{more: map[string]map[string]any{"cluster": {"secretFiles": []string{file}}}}
}

func (r *rig) refusals() []refusal {
	const aKey = "CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
	bare := r.write("bare.secret", aKey)
	if err := os.Chmod(bare, 0o644); err != nil {
		r.t.Fatal(err)
	}
	out := []refusal{
		{name: "the table of nftables is somebody else's", code: "mesh_clash", exit: 1, says: "table inet tombolo_mesh",
			make: "nft add table inet tombolo_mesh", undo: "nft delete table inet tombolo_mesh"},
		{name: "the link is somebody else's", code: "mesh_clash", exit: 1, says: "link tombolo0",
			make: "ip link add tombolo0 type bridge", undo: "ip link delete tombolo0"},
		{name: "the priority of the rule is taken", code: "mesh_clash", exit: 1, says: "priority 32500",
			make: "ip rule add priority 32500 from 192.0.2.77 lookup main", undo: "ip rule delete priority 32500"},
		{name: "a rule of others looks at our marks", code: "mesh_clash", exit: 1, says: "0x60",
			make: "ip rule add priority 900 fwmark 0x40/0x40 lookup main", undo: "ip rule delete priority 900"},
		{name: "the routing table is in use", code: "mesh_clash", exit: 1, says: "table 180",
			make: "ip route add blackhole 192.0.2.128/25 table 180", undo: "ip route flush table 180"},
		{name: "a network plugin has the marks", code: "mesh_clash", exit: 1, says: "kube-proxy",
			make: "ip link add flannel.1 type bridge\nnft add table ip nat\nnft add chain ip nat KUBE-MARK-MASQ",
			undo: "ip link delete flannel.1\nnft delete table ip nat",
			set:  settings{mesh: map[string]any{"marks": map[string]any{"own": "0x2000", "mesh": "0x4000", "mask": "0x6000"}}}},
		{name: "packets that are too small", code: "config_invalid", exit: 2, says: "mesh.mtu: 1279", set: settings{mesh: map[string]any{"mtu": 1279}}},
		{name: "the whole internet as a range", code: "config_invalid", exit: 2, says: "announce.ranges[0]: 0.0.0.0/0 is the default route", set: settings{ranges: []string{"0.0.0.0/0"}}},
		{name: "loopback as a range", code: "config_invalid", exit: 2, says: "announce.ranges[1]: 127.0.0.0/8 is loopback", set: settings{ranges: []string{"10.77.0.0/16", "127.0.0.0/8"}}},
		{name: "root without the right", code: "kernel_unsupported", exit: 1, says: "CAP_NET_ADMIN",
			within: []string{"setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"}},
		{name: "root of another user namespace", code: "kernel_unsupported", exit: 1, says: "CAP_NET_ADMIN",
			within: []string{"unshare", "--user", "--map-root-user"}},
		{name: "no TUN", code: "kernel_unsupported", exit: 1, says: "/dev/net/tun", within: inMounts("mount -t tmpfs none /dev/net")},
		{name: "no sysctls", code: "kernel_unsupported", exit: 1, says: "/proc/sys/net",
			within: inMounts("mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys")},
		{name: "no nftables", code: "kernel_unsupported", exit: 1, says: "nf_tables", within: []string{os.Args[0], withoutNftables}},
		{name: "a key that is none", code: "state_corrupt", exit: 1, says: "wireguard.key", files: map[string]string{"wireguard.key": "junk\n"}},
		{name: "a secret that others can read", code: "secret_invalid", exit: 2, says: "chmod 600", set: secretIn(bare)},
		{name: "a secret that is none", code: "secret_invalid", exit: 2, says: "junk.secret cannot be read", set: secretIn(r.write("junk.secret", "junk\n"))},
		{name: "no secret", code: "secret_invalid", exit: 2, says: "/nowhere", set: secretIn("/nowhere")},
		{name: "a policy with a mistake", code: "config_invalid", exit: 2, says: "junk.yaml:1:1", set: settings{mesh: map[string]any{"policies": []string{r.write("junk.yaml", "rules: x\n")}}}},
		{name: "a user without rights", code: "kernel_unsupported", exit: 1, says: "CAP_NET_ADMIN", unprivileged: true}, // files are its own from then on
	}
	if wireguard.Able() != nil { // where the kernel has it, it is no refusal
		out = append(out, refusal{name: "a kernel without WireGuard", code: "kernel_unsupported", exit: 1, says: "WireGuard", set: settings{mesh: map[string]any{"engine": "kernel"}}})
	}
	return out
}

// TestMeshRefusals: what cannot work is refused with its code and a next step, and the
// machine is as it was. In the state directory there are keys, at most.
func TestMeshRefusals(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open")
	place := r.grid.All[0]
	for _, c := range r.refusals() {
		r.step(c.name, func(t *testing.T) {
			n := r.node(place, c.set)
			n.within = c.within
			state := filepath.Join(n.dir, "state")
			if err := errors.Join(os.RemoveAll(state), os.Mkdir(state, 0o700)); err != nil {
				t.Fatal(err)
			}
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(state, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r.shell(n.host, c.make)
			t.Cleanup(func() { r.shell(n.host, c.undo) })
			before, had := r.kernel(n.host), contentOf(t, state)
			said, exit := refused(t, n, c.unprivileged)
			_, said, _ = strings.Cut(said, "error: ")
			if exit != c.exit || !strings.HasPrefix(said, c.code+": ") || !strings.Contains(said, c.says) || !strings.Contains(said, "hint: ") {
				t.Errorf("exit %d, and it said %q; want %d, the code %q, %q and a hint", exit, said, c.exit, c.code, c.says)
			}
			t.Log(strings.TrimSpace(said))
			if after := r.kernel(n.host); after != before {
				t.Errorf("the refusal has left\n%s\nof what was\n%s", after, before)
			}
			requireKeysOnly(t, had, contentOf(t, state))
		})
	}
}

// contentOf is every file of a folder with what is in it.
func contentOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name()] = string(text)
	}
	return out
}

// requireKeysOnly compares a state directory before a refusal and after it.
func requireKeysOnly(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was %q, and is %q", name, text, after[name])
		}
	}
	for name := range after {
		if _, had := before[name]; !had && !slices.Contains([]string{"member.key", "member.lock", "member.version", "wireguard.key", "ipsec.key"}, name) {
			t.Errorf("the refusal has left %s in the state directory", name)
		}
	}
}

// unprivilegedUser is a user without rights.
const unprivilegedUser = 65532

// refused starts a node's program, which must end by itself with a failure, and returns
// what it said, and its exit status.
func refused(t *testing.T, n *node, unprivileged bool) (string, int) {
	t.Helper()
	before, _ := os.ReadFile(n.log)
	if unprivileged {
		startUnprivileged(t, n)
	} else {
		n.begin()
	}
	select {
	case <-n.process.Done():
	case <-time.After(patience):
		n.process.Kill()
		t.Fatal("it runs")
	}
	var exit *exec.ExitError
	if err := n.process.Wait(); !errors.As(err, &exit) || exit.ExitCode() < 1 {
		t.Fatalf("it ended with %v, want a failure", err)
	}
	after, err := os.ReadFile(n.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(after[len(before):]), exit.ExitCode()
}

func startUnprivileged(t *testing.T, n *node) {
	t.Helper()
	err := filepath.WalkDir(n.dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, unprivilegedUser, unprivilegedUser))
	})
	if err = errors.Join(err, os.Chown(n.rig.secret, unprivilegedUser, unprivilegedUser)); err != nil {
		t.Fatal(err)
	}
	confined := &lab.Confinement{UID: unprivilegedUser, GID: unprivilegedUser, Writable: []string{n.dir}}
	n.process = labtest.Start(t, n.host, n.log, confined, append([]string{n.rig.program}, n.args...)...)
}

// shell runs commands on a host, one a line.
func (r *rig) shell(h *lab.Host, lines string) {
	r.t.Helper()
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if _, err := r.command(h, nil, words[0], words[1:]...); err != nil {
			r.t.Fatal(err)
		}
	}
}

// kernel is what a host's kernel has, in the words of the usual programs.
func (r *rig) kernel(h *lab.Host) string {
	r.t.Helper()
	var all strings.Builder
	for _, line := range []string{
		"nft list ruleset", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all", "ip link", "ip address",
	} {
		words := strings.Fields(line)
		out, err := r.command(h, nil, words[0], words[1:]...)
		if err != nil {
			r.t.Fatal(err)
		}
		fmt.Fprintf(&all, "# %s\n%s", line, out)
	}
	return all.String()
}

// TestMeshVerbs: what a user asks about a mesh, and how what a killed one has left is
// taken away.
func TestMeshVerbs(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "port-restricted", "open")
	pod := r.podBehind(r.grid.All[1], bridge, 2)
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{ranges: []string{pod.share}})
	before := r.kernel(a.host)
	together(a, b)
	known(a, b)
	awaitDirect(a, b)

	for _, addr := range []string{b.overlay4.String(), b.overlay6.String(), pod.addr} {
		out, err := a.verb("explain", addr)
		if err != nil || !strings.Contains(out, b.host.Name()) {
			t.Errorf("explain %s does not name the peer: %v\n%s", addr, err, out)
		}
	}
	if out, err := a.verb("explain", lab.HubAddr); err != nil {
		t.Errorf("explain of an address outside of the mesh: %v\n%s", err, out)
	}
	for range 2 { // the router remembers where the node wrote to
		a.seesHomeRouter()
	}
	var check map[string]any
	out, err := a.verb("netcheck", "-o", "json")
	if err = errors.Join(err, json.Unmarshal([]byte(out), &check)); err != nil || check["kind"] == nil {
		t.Errorf("netcheck: %v\n%s", err, out)
	}
	if out, err = a.verb("ping", b.host.Name(), "--count", "3"); err != nil {
		t.Errorf("ping: %v\n%s", err, out)
	}
	if out, err = a.verb("ping", "nobody", "--timeout", "2s"); err == nil {
		t.Errorf("ping of a node that is not there:\n%s", out)
	}
	if out, err = a.verb("status"); err != nil || !strings.Contains(out, b.host.Name()) {
		t.Errorf("status: %v", err)
	}
	t.Log(out)

	a.signal(syscall.SIGKILL)
	<-a.process.Done()
	if r.kernel(a.host) == before {
		t.Error("a killed node leaves nothing: then it does not fail closed")
	}
	if out := r.verb(a.host, "mesh", "down", "--config", filepath.Join(a.dir, "mesh.yaml")); !strings.Contains(out, "tombolo_mesh") || !strings.Contains(out, "32500") {
		t.Errorf("tombolo mesh down tells of what it has removed\n%s", out)
	}
	if after := r.kernel(a.host); after != before {
		t.Errorf("tombolo mesh down has left\n%s\nof what was\n%s", after, before)
	}
	if out := r.verb(a.host, "mesh", "down", "--config", filepath.Join(a.dir, "mesh.yaml")); out != "nothing of a mesh is left\n" {
		t.Errorf("tombolo mesh down where nothing is left: %s", out)
	}
	r.eventually("netcheck where no node runs tells what it sees", nil, func() error { // an answer may come too late
		out, err := r.run(a.host, "mesh", "netcheck", "--config", filepath.Join(a.dir, "mesh.yaml"),
			"--admin-socket", filepath.Join(a.dir, "run", "mesh", "mesh.sock"))
		if err == nil && !strings.Contains(out, "behind NAT, seen as ") {
			err = errors.New(out)
		}
		return err
	})

	a.args = append(a.args, "--leave")
	together(a)
	known(a, b)
	a.stop()
	r.eventually("b forgets who has left", b.role, func() error {
		s, err := b.status()
		if err == nil && len(s.Peers) > 0 {
			err = fmt.Errorf("it has %d peers", len(s.Peers))
		}
		return err
	})
}

// seesHomeRouter wants netcheck to tell a home router with a firewall. An answer may come too late for one check; one
// that the firewall should have kept out never comes.
func (n *node) seesHomeRouter() {
	n.rig.t.Helper()
	n.rig.eventually("netcheck of "+n.name+" tells a home router", n.role, func() error {
		out, err := n.verb("netcheck")
		switch {
		case err != nil:
			return err
		case strings.Contains(out, "address-dependent filtering"):
			n.rig.t.Fatalf("netcheck does not tell a firewall\n%s", out)
		case !strings.Contains(out, "endpoint-independent"):
			return errors.New(out)
		}
		return nil
	})
}

// TestMeshSite: a node is the way into the network of its site, by a link of which it has
// an address itself. That address is no way to the node, and does not keep others from
// the site.
func TestMeshSite(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "port-restricted", "open")
	site := r.podBehind(r.grid.All[1], "lan0", 2)
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{ranges: []string{site.share}})
	together(a, b)
	known(a, b)
	begin := time.Now()
	r.awaitAfter(a.flood(netip.MustParseAddr(site.addr)), begin)
	s, err := a.status()
	if err != nil || len(s.Problems) > 0 {
		t.Errorf("problems of a: %v (%v)", s.Problems, err)
	}
	r.requireNoClearText(a, b)
}
