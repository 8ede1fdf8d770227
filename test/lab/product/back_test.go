// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// config writes a configuration that the unprivileged user may read.
func (r *rig) config(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	err := os.WriteFile(path, []byte("apiVersion: tombolo.dev/v1alpha1\n"+text), 0o600)
	if err = errors.Join(err, os.Chown(path, user, user)); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// agentAddr is the first agent's address in its site.
const agentAddr = "10.42.0.11"

func dialFrom(h *lab.Host, at string) (net.Conn, error) { return dialWithin(5*time.Second, h, at) }

func dialWithin(within time.Duration, h *lab.Host, at string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return h.DialContext(ctx, "tcp", at)
}

// heard connects from a host and reads the greeting.
func heard(from *lab.Host, at string) (net.Conn, *bufio.Reader, string, error) {
	return heardWithin(5*time.Second, from, at)
}

// heardWithin is heard, for a connection that is there within some time.
func heardWithin(within time.Duration, from *lab.Host, at string) (net.Conn, *bufio.Reader, string, error) {
	conn, err := dialWithin(within, from, at)
	if err != nil {
		return nil, nil, "", err
	}
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, nil, "", errors.Join(err, conn.Close())
	}
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil {
		return nil, nil, "", errors.Join(err, conn.Close())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil { // of the greeting; what else it says may be asked for much later
		return nil, nil, "", errors.Join(err, conn.Close())
	}
	return conn, reader, strings.TrimSpace(strings.TrimPrefix(line, greeting)), nil
}

// hubPorts has a port for one cluster or more, and one for c2.
func hubPorts(clusters string) string {
	return fmt.Sprintf(`kind: HubConfig
ports:
- {name: one, target: "%s:5001", clusters: [%s]}
- {name: two, target: "%[1]s:5002", clusters: [c2]}
`, lab.ControlAddr, clusters)
}

// TestTheWayBack: a machine beside each of two agents reaches the port of its own cluster, and not the other's, over
// a hub that dials two targets in its own network; a firewall lets nothing else into either network. What is open ends
// in order with the hub, and by a reset where the hub is killed.
func TestTheWayBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, "wayback", 2, 1)
	for i := range r.world.Sites {
		r.serve(r.world.Control, fmt.Sprintf("%s:500%d", lab.ControlAddr, i+1), "the port of "+clusterOf(i))
	}
	state, run := r.directory("hub"), r.directory("run")
	r.hub = &role{
		host: r.world.Control, log: filepath.Join(r.dir, "hub.log"), writable: []string{state, run},
		args: []string{
			"hub", "--config", r.config("hub.yaml", hubPorts("c1")), "--state-dir", state, "--run-dir", run, "--log-level", "debug",
			"--listen", ":8443", "--advertise", lab.ControlAddr + ":8443",
		},
	}
	r.startHub()
	var agents []*role
	for i, site := range r.world.Sites {
		file := r.config(fmt.Sprintf("agent-%d.yaml", i+1), `kind: AgentConfig
ports:
- {name: one, listen: "0.0.0.0:5001", from: [`+lab.BackendAddr+`]}
- {name: two, listen: "0.0.0.0:5002", from: [`+lab.BackendAddr+`]}
- {name: one, listen: "127.0.0.1:5003"}
`)
		agents = append(agents, r.startAgentWith(i, 0, "--config", file))
		own, other := fmt.Sprintf("%s:500%d", agentAddr, i+1), fmt.Sprintf("%s:500%d", agentAddr, 2-i)
		conn, _, who, err := heard(site.Backend, own)
		if err != nil || who != "the port of "+clusterOf(i) {
			t.Fatalf("beside the agent of %s: %q, %v", clusterOf(i), who, err)
		}
		conn.Close()
		if conn, _, who, err := heard(site.Backend, other); err == nil {
			conn.Close()
			t.Errorf("beside the agent of %s, the port of another cluster: %q", clusterOf(i), who)
		} else if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the port of another cluster: %v, want a reset", err)
		}
		if _, _, who, err := heard(site.Agents[0], own); !errors.Is(err, io.EOF) { // the agent's own machine is not in from
			t.Errorf("a source outside of from: %q, %v", who, err)
		}
	}
	// Nobody listens but where the configuration says.
	out, err := labtest.Run(r.world.Sites[0].Agents[0], 5*time.Second, nil, "ss", "-Hltn")
	if err != nil || strings.Count(out, "\n") != 4 {
		t.Errorf("listeners of the agent: %v\n%s", err, out)
	}
	var asked struct{ Verdict string }
	who := "spiffe://tombolo.internal/cluster/c1/agent/" + r.agents("c1")[0].ID
	for port, want := range map[string]string{"one": "allowed", "two": "denied"} {
		r.verbJSON(&asked, "policy", "explain", "c1", port, "--as", who, "-o", "json")
		if asked.Verdict != want {
			t.Errorf("explain says of port %s: %s", port, asked.Verdict)
		}
	}
	t.Run("by the hub's policy", func(*testing.T) { r.wayBackByPolicy() })
	r.wayBackEnds(agents[0])
}

// wayBackByPolicy has the hub ask a policy: it closes a port that nothing else closes, a rule for the flow opens it, and
// without the rule what is open ends.
func (r *rig) wayBackByPolicy() {
	t := r.t
	t.Helper()
	const other = `kind: AccessPolicy
rules:
- {name: dials, clusters: ["*"], flows: ["*"], allow: ["*"]}
`
	backend, at := r.world.Sites[0].Backend, agentAddr+":5001"
	reload := func(hub, rules string) {
		t.Helper()
		policy := r.config("policy.yaml", rules)
		if hub != "" {
			r.config("hub.yaml", hubPorts("c1")+strings.ReplaceAll(hub, "POLICY", policy))
		}
		if err := r.hub.process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	explained := func(want string) {
		t.Helper()
		var asked struct{ Verdict string }
		r.eventually("the port is "+want, startWithin, r.hub, func() error {
			r.verbJSON(&asked, "policy", "explain", "c1", "one", "-o", "json", "--as",
				"spiffe://tombolo.internal/cluster/c1/agent/"+r.agents("c1")[0].ID)
			if asked.Verdict != want {
				return fmt.Errorf("%+v", asked)
			}
			return nil
		})
	}
	open := func() (conn net.Conn) {
		t.Helper()
		r.eventually("the port answers", startWithin, r.hub, func() (err error) {
			conn, _, _, err = heard(backend, at)
			return err
		})
		return conn
	}
	ends := func(conn net.Conn) {
		t.Helper()
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("what was open: %v, want a reset", err)
		}
		if next, _, who, err := heard(backend, at); err == nil {
			next.Close()
			t.Errorf("a port that is closed: %q", who)
		} else if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a port that is closed: %v, want a reset", err)
		}
	}

	conn := open()
	reload("policies: [POLICY]\n", other)
	explained("denied")
	ends(conn)

	reload("", other+"- {name: pull, clusters: [c1], flows: [back], allow: [one]}\n")
	explained("allowed")
	conn = open()
	if next, _, who, err := heard(r.world.Sites[1].Backend, agentAddr+":5002"); err == nil {
		next.Close()
		t.Errorf("the rule for c1 opened the port of c2: %q", who)
	}

	reload("", other)
	explained("denied")
	ends(conn)
	reload("# without a policy\n", other)
	open().Close()
}

// wayBackEnds holds connections while their port is taken away, the agent drains, the hub is killed, and drains.
func (r *rig) wayBackEnds(agent *role) {
	t := r.t
	t.Helper()
	backend := r.world.Sites[0].Backend
	at := agentAddr + ":5001"
	hold := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		var conn net.Conn
		var reader *bufio.Reader
		r.eventually("the port answers", reconnectWithin, nil, func() (err error) {
			conn, reader, _, err = heard(backend, at)
			return err
		})
		t.Cleanup(func() { conn.Close() })
		return conn, reader
	}
	echo := func(conn net.Conn, reader *bufio.Reader) error {
		if _, err := io.WriteString(conn, "again\n"); err != nil {
			return err
		}
		got, err := reader.ReadString('\n')
		if err == nil && got != "again\n" {
			err = fmt.Errorf("the echo is %q", got)
		}
		return err
	}

	// A reload takes the port away.
	conn, _ := hold()
	r.config("hub.yaml", hubPorts("c2"))
	if err := r.hub.process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the reload that takes the port away: %v, want a reset", err)
	}
	r.config("hub.yaml", hubPorts("c1"))
	if err := r.hub.process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}

	// The agent drains: it waits for what is open.
	conn, reader := hold()
	if err := agent.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.eventually("the agent takes nothing more", startWithin, nil, func() error {
		c, err := dialFrom(backend, at)
		if err == nil {
			c.Close()
			return errors.New("it does")
		}
		return nil
	})
	if err := echo(conn, reader); err != nil {
		t.Errorf("while the agent drains: %v", err)
	}
	conn.Close()
	if err := agent.process.Stop(10 * time.Second); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	r.start(agent)

	// The hub is killed: a reset, and it works again with the next one.
	conn, _ = hold()
	if err := r.hub.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.hub.process.Done()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the hub was killed: %v, want a reset", err)
	}
	r.startHub()
	conn, reader = hold()
	if err := r.hub.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := echo(conn, reader); err != nil {
		t.Errorf("while the hub drains: %v", err)
	}
	conn.Close()
	if err := r.hub.process.Stop(10 * time.Second); err != nil {
		t.Errorf("the hub ended with %v", err)
	}
}
