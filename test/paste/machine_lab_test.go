// SPDX-License-Identifier: Apache-2.0

//go:build lab

package paste

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// machine is namespaces of its own, with folders in which it may write what it wants.
type machine struct {
	name      string
	pid       int // of its first process
	terminals map[string]*terminal
	log       *runtest.Transcript // of all machines, in the order in which it was printed
}

const setup = `set -e
hostname %[1]s
mount --make-rprivate /
mount -t tmpfs paste %[2]s
for d in etc var usr/local/bin; do
	mkdir -p %[2]s/upper/$d %[2]s/work/$d
	mount -t overlay paste -o lowerdir=/$d,upperdir=%[2]s/upper/$d,workdir=%[2]s/work/$d /$d
done
rm -rf /etc/tombolo /etc/kubernetes /var/lib/tombolo # of this machine: a fresh one has none
mount -t tmpfs paste /run
mount -t tmpfs paste /root
cp %[3]s /usr/local/bin/tombolo
printf '127.0.0.1 localhost\n192.0.2.10 hub hub.example.com\n192.0.2.11 node-1\n192.0.2.12 node-2\n' >/etc/hosts
ip link set lo up
echo ready
exec sleep infinity
`

// start makes a machine; address is empty for the switch between the others.
func start(t *testing.T, name, bin string) *machine {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--uts", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", fmt.Sprintf(setup, name, t.TempDir(), bin))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said, wrong runtest.Transcript
	cmd.Stdout, cmd.Stderr = &said, &wrong
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := &machine{name: name, terminals: map[string]*terminal{}}
	t.Cleanup(func() { m.stop(cmd) })
	runtest.Eventually(t, name+" is up", func() bool {
		if wrong.String() != "" {
			t.Fatalf("%s: %s", name, wrong.String())
		}
		return said.String() != ""
	})
	m.pid = children(t, cmd.Process.Pid)[0]
	return m
}

// stop ends the machine by its first process, so that everybody who started one of its processes sees it end:
// orphans would be left to the system's init, which takes its time.
func (m *machine) stop(unshare *exec.Cmd) {
	if m.pid == 0 {
		unshare.Process.Kill()
	} else {
		syscall.Kill(m.pid, syscall.SIGKILL) // it is our child's child, and has not been waited for
	}
	unshare.Wait()
	for _, x := range m.terminals {
		x.shell.Wait()
	}
}

// network puts machines on one switch.
func network(t *testing.T, hub *machine, machines ...*machine) {
	t.Helper()
	script := []string{"ip link add br0 type bridge", "ip addr add 192.0.2.1/24 dev br0", "ip link set br0 up"}
	for i, m := range machines {
		in := fmt.Sprintf("nsenter -t %d -n ip ", m.pid)
		script = append(script,
			fmt.Sprintf("ip link add v%d type veth peer name eth0 netns %d", i, m.pid),
			fmt.Sprintf("ip link set v%d master br0 up", i),
			in+"addr add "+Machines()[m.name]+"/24 dev eth0", in+"link set eth0 up", in+"route add default via 192.0.2.1")
	}
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(hub.pid), "-n", "bash", "-ec", strings.Join(script, "\n")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func children(t *testing.T, pid int) (out []int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// terminal is a shell of a machine into which blocks are pasted.
type terminal struct {
	shell *exec.Cmd
	in    io.Writer
	out   runtest.Transcript
	last  int    // number of the last block
	goes  string // what is expected to run in the foreground
}

func (m *machine) terminal(t *testing.T, name string) *terminal {
	t.Helper()
	if x := m.terminals[name]; x != nil {
		return x
	}
	x := &terminal{shell: exec.Command("nsenter", "-t", strconv.Itoa(m.pid), "-m", "-u", "-n", "-p", "-i", "bash")}
	x.shell.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=dumb",
		"TOMBOLO_WAIT=20s"} // for a daemon that was begun a moment ago
	x.shell.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	x.shell.Stdout = io.MultiWriter(m.log, &x.out) // who sees the end of a block finds all of it in the log
	x.shell.Stderr = x.shell.Stdout
	x.shell.WaitDelay = time.Second // what runs in the background has the output open, and ends with the machine
	in, err := x.shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.shell.Start(); err != nil {
		t.Fatal(err)
	}
	x.in = in
	m.terminals[name] = x
	x.paste(t, `cd; set -o pipefail; trap 'echo "@failed: $BASH_COMMAND"' ERR`)
	return x
}

// paste writes a block, and what tells that the shell has come behind it.
func (x *terminal) paste(t *testing.T, text string) {
	t.Helper()
	x.last++
	if _, err := fmt.Fprintf(x.in, "%s\necho @done %d\n", text, x.last); err != nil {
		t.Fatal(err)
	}
}

// idle says whether the shell has come behind the last block.
func (x *terminal) idle() bool {
	return strings.Contains(x.out.String(), fmt.Sprintf("@done %d\n", x.last))
}

// interrupt is Ctrl-C.
func (x *terminal) interrupt(t *testing.T) {
	t.Helper()
	x.goes = ""
	told := map[int]bool{} // a second one would cut its end short, which is a failure
	runtest.Eventually(t, "the command ends by Ctrl-C", func() bool {
		for _, shell := range children(t, x.shell.Process.Pid) {
			for _, pid := range children(t, shell) {
				if !told[pid] {
					told[pid] = true
					syscall.Kill(pid, syscall.SIGINT) // it may have ended just now
				}
			}
		}
		return x.idle()
	})
}
