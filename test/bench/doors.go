// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/roles"
)

// The front doors that pass TLS on by its server name (SNI): the product's edge, and what people have today. All
// have as many threads as the machine has processors, one name, the same backends in turns, and write no log of
// connections. HAProxy splices.
const (
	doorEdge    = "edge"
	doorHAProxy = "haproxy"
	doorNginx   = "nginx"
)

func doors() []string { return []string{doorEdge, doorHAProxy, doorNginx} }

// noDoors says why the other front doors cannot be started here, or nil.
func noDoors(*bench) error {
	if os.Geteuid() != 0 {
		return errors.New("nginx gets a PID namespace, and that needs root")
	}
	for _, name := range doors()[1:] {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is missing (tools/deps bench installs it)", name)
		}
	}
	if _, err := os.Stat(nginxModule); err != nil {
		return fmt.Errorf("nginx cannot pass TCP on: %w (tools/deps bench installs it)", err)
	}
	return nil
}

// nginxModule is where Debian has it.
const nginxModule = "/usr/lib/nginx/modules/ngx_stream_module.so"

// behindDoor is a crew with a front door between load and backend, whose streams are of the kind.
func behindDoor(kind string) func(context.Context, *bench, string) (*crew, error) {
	return func(ctx context.Context, b *bench, name string) (c *crew, err error) {
		here := b.lab.Here()
		c = &crew{name: name}
		defer func() {
			if err != nil {
				c.stop()
			}
		}()
		if c.serve, err = c.spawn(here, roleServe, "backend"); err != nil {
			return c, err
		}
		t := transport{Kind: kind, Creds: b.creds, ListenAt: "127.0.0.1"}
		var backend started
		if err = c.serve.Call(ctx, opStart, 0, t, &backend); err != nil {
			return c, err
		}
		if t.Address, err = freeAddress(); err != nil {
			return c, err
		}
		if err = b.openDoor(ctx, c, spread(t.Address), spread(backend.Address)); err != nil {
			return c, err
		}
		if c.load, err = c.spawn(here, roleLoad, "client"); err != nil {
			return c, err
		}
		if err = c.load.Call(ctx, opStart, 0, t, nil); err != nil {
			return c, err
		}
		return c, b.warmChain(ctx, c)
	}
}

// freeAddress is one that nobody listens on at the moment.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// openDoor starts the crew's front door.
func (b *bench) openDoor(ctx context.Context, c *crew, listen, upstreams []string) error {
	dir, err := b.chainDir()
	if err != nil {
		return err
	}
	switch c.name {
	case doorEdge:
		if c.door, err = c.spawn(b.lab.Here(), roleEdge, "edge"); err != nil {
			return err
		}
		c.doors = append(c.doors, c.door.Pid)
		err = c.door.Call(ctx, opStart, 0, edgeArgs{Dir: dir, Listen: listen, Name: serverName, Upstreams: upstreams}, nil)
	case doorHAProxy:
		err = b.runDoor(c, dir, haproxyConfig(listen, upstreams), "haproxy", "-db", "-f")
	case doorNginx:
		config := nginxConfig(dir, listen, upstreams)
		err = b.runDoor(c, dir, config, "nginx", "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c")
	}
	if err != nil {
		return err
	}
	for _, address := range listen {
		if err := awaitListener(ctx, address); err != nil {
			said, _ := os.ReadFile(filepath.Join(dir, "log"))
			return fmt.Errorf("%s does not listen: %w\n%s", c.name, err, said)
		}
	}
	return nil
}

// runDoor starts a program whose last argument is its configuration. It has a PID namespace, so that its workers
// end with it, however it ends.
func (b *bench) runDoor(c *crew, dir, config, program string, args ...string) error {
	path := filepath.Join(dir, "config")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(program, append(args, path)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	return b.runOutside(c, filepath.Join(dir, "log"), cmd)
}

// runOutside starts a program that is no role of ours, with its log in a file.
func (b *bench) runOutside(c *crew, logFile string, cmd *exec.Cmd) error {
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	p, err := b.lab.Here().Start(cmd)
	if err == nil {
		c.outside, c.doors = append(c.outside, p), append(c.doors, p.Pid)
	}
	return err
}

func awaitListener(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		conn, err := dialTCP(ctx, address)
		if err == nil {
			return conn.Close()
		}
		if pause(ctx, 10*time.Millisecond) != nil {
			return err
		}
	}
}

// haproxyConfig is what HAProxy's documentation shows for routing by SNI, with the kernel's splice.
func haproxyConfig(listen, upstreams []string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "global\n  nbthread %d\n  maxconn 4000\n", runtime.NumCPU())
	s.WriteString("defaults\n  mode tcp\n  option splice-auto\n" +
		"  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n")
	s.WriteString("frontend door\n")
	for _, address := range listen {
		fmt.Fprintf(&s, "  bind %s\n", address)
	}
	s.WriteString("  tcp-request inspect-delay 5s\n  tcp-request content accept if { req_ssl_hello_type 1 }\n")
	fmt.Fprintf(&s, "  use_backend apiserver if { req.ssl_sni -i %s }\n", serverName)
	s.WriteString("backend apiserver\n  balance roundrobin\n")
	for i, address := range upstreams {
		fmt.Fprintf(&s, "  server s%d %s\n", i, address)
	}
	return s.String()
}

// nginxConfig is what nginx's documentation shows for ssl_preread.
func nginxConfig(dir string, listen, upstreams []string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "load_module %s;\nuser root;\ndaemon off;\nworker_processes %d;\npid %s/pid;\n",
		nginxModule, runtime.NumCPU(), dir)
	s.WriteString("events { worker_connections 4000; }\nstream {\n  upstream apiserver {\n")
	for _, address := range upstreams {
		fmt.Fprintf(&s, "    server %s;\n", address)
	}
	fmt.Fprintf(&s, "  }\n  map $ssl_preread_server_name $to { %s apiserver; }\n  server {\n", serverName)
	for _, address := range listen {
		fmt.Fprintf(&s, "    listen %s;\n", address)
	}
	s.WriteString("    ssl_preread on;\n    proxy_pass $to;\n    proxy_timeout 1h;\n  }\n}\n")
	return s.String()
}

// doorTime is the processor time that the crew's doors and their workers have had so far.
func (c *crew) doorTime() (sum time.Duration, err error) {
	for _, door := range c.doors {
		one, oneErr := familyTime(door())
		sum, err = sum+one, errors.Join(err, oneErr)
	}
	return sum, err
}

// familyTime is that of a process and its children.
func familyTime(pid int) (time.Duration, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	sum, err := roles.ThreadsTime(pid)
	for child := range bytes.FieldsSeq(children) {
		var n int
		if _, err := fmt.Sscan(string(child), &n); err != nil {
			return 0, err
		}
		more, oneErr := roles.ThreadsTime(n)
		sum, err = sum+more, errors.Join(err, oneErr)
	}
	return sum, err
}
