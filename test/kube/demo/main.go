// SPDX-License-Identifier: Apache-2.0

// Command demo is `make demo-kube`: it brings up a real Kubernetes cluster that nothing can dial, lets the
// agent dial out, shows kubectl at work through the tunnel, and leaves the user in front of it until Enter.
// Without a terminal it ends at once. Everything it made is gone afterwards, also after Ctrl-C.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/tombolo-io/tombolo/test/kube/rig"
	"github.com/tombolo-io/tombolo/test/kube/tools"
)

func main() {
	minor := flag.String("version", os.Getenv("TOMBOLO_KUBE_VERSION"), "Kubernetes minor version (default "+tools.Default+")")
	mode := flag.String("mode", string(rig.GRPCUDS), "how kube-apiserver speaks to the hub: grpc-uds, connect-uds or connect-tls")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A closed terminal or a reader that went away must not end the program before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	d := &demo{begin: time.Now(), bold: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == ""}
	err := d.run(ctx, *minor, rig.Mode(*mode))
	switch {
	case d.left != nil:
		fmt.Fprintln(os.Stderr, "demo: failed to take everything down; the next run tries again:", d.left)
		os.Exit(1)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "demo: interrupted; everything it made is gone")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		os.Exit(1)
	}
	fmt.Println("demo: ok")
}

type demo struct {
	begin time.Time
	bold  bool
	rig   *rig.Rig
	c     *rig.Cluster
	left  error // why something may still be there
}

// say prints a line of progress.
func (d *demo) say(line string) { fmt.Printf("%6.1fs  %s\n", time.Since(d.begin).Seconds(), line) }

// title begins a part of the show.
func (d *demo) title(text string) {
	if d.bold {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	fmt.Printf("\n%s\n", text)
}

func (d *demo) run(ctx context.Context, minor string, mode rig.Mode) (err error) {
	d.title("A Kubernetes cluster behind NAT, and a control plane that cannot dial it")
	if d.rig, err = rig.New(ctx, rig.Options{Minor: minor, Progress: d.say}); err != nil {
		return err
	}
	defer func() {
		d.say("taking everything down")
		d.left = d.rig.Close()
	}()
	if err := d.build(ctx, mode); err != nil {
		return err
	}
	if err := d.show(ctx); err != nil {
		return err
	}
	return d.leave(ctx)
}

func (d *demo) build(ctx context.Context, mode rig.Mode) (err error) {
	if _, err = d.rig.StartHub(ctx); err != nil {
		return err
	}
	if d.c, err = d.rig.StartCluster(ctx, "c1", mode); err != nil {
		return err
	}
	if err := d.c.DeployWorkload(ctx); err != nil {
		return err
	}
	d.title("Without an agent")
	if out, err := d.kubectl(ctx, "logs", "writer", "--tail=1"); err == nil {
		return fmt.Errorf("kubectl logs worked without an agent: %q", out)
	}
	d.title("The agent, as a pod, dials out")
	return d.c.DeployAgent(ctx)
}

// show runs what the user would try first. Each step must do what it says.
func (d *demo) show(ctx context.Context) error {
	d.title("kubectl through the tunnel")
	for _, try := range []struct {
		want string
		args []string
	}{
		{"node1", []string{"get", "nodes", "-o", "wide"}},
		{"line ", []string{"logs", "writer", "--tail=3"}},
		{"hello from shell", []string{"exec", "shell", "--", "sh", "-c", "echo hello from $(cat /etc/hostname); ls /"}},
		{"c1 echoes demo", []string{"get", "--raw", "/api/v1/namespaces/default/services/backend:http/proxy/echo?word=demo"}},
	} {
		out, err := d.kubectl(ctx, try.args...)
		if err != nil {
			return err
		}
		if !strings.Contains(out, try.want) {
			return fmt.Errorf("kubectl %s printed %q without %q", strings.Join(try.args, " "), out, try.want)
		}
	}
	d.title("A direct dial from the control plane to the node")
	before, err := d.c.FirewallDrops(ctx)
	if err != nil {
		return err
	}
	dial, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := d.c.Dial(dial, rig.NodeAddress+":10250")
	if err == nil {
		conn.Close()
		return errors.New("the direct dial worked: the partition has a hole")
	}
	after, err2 := d.c.FirewallDrops(ctx)
	if err2 != nil {
		return err2
	}
	if after <= before {
		return fmt.Errorf("the direct dial did not reach the firewall (counter %d)", after)
	}
	fmt.Printf("  %v\n  dropped by the firewall: %d packets\n", err, after-before)
	return nil
}

// kubectl runs kubectl and prints the command with its answer, as the user would see it.
func (d *demo) kubectl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	fmt.Printf("$ kubectl %s\n", quote(args))
	out, err := d.c.Kubectl(ctx, args...)
	text := out
	if err != nil {
		_, text, _ = strings.Cut(err.Error(), "exit status 1: ") // what kubectl itself wrote
		if text == "" {
			text = err.Error()
		}
	}
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		fmt.Print("  ", line)
	}
	return out, err
}

// quote makes a line that a shell would take.
func quote(args []string) string {
	var words []string
	for _, a := range args {
		if strings.ContainsAny(a, " $;?&()'\"") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// leave hands the cluster to the user until Enter, end of input or a signal.
func (d *demo) leave(ctx context.Context) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config, err := d.c.Expose(ctx)
	if err != nil {
		return err
	}
	d.title("Your turn")
	fmt.Printf("In another terminal, as root:\n\n  export KUBECONFIG=%s\n  alias kubectl=%s\n  kubectl logs -f writer\n  kubectl exec -it shell -- sh\n\n", config, d.rig.Kubectl())
	fmt.Print("Press Enter to take everything down. ")
	enter := make(chan struct{})
	go func() { // ends with the program at the latest: a read from a terminal cannot be interrupted
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(enter)
	}()
	select {
	case <-enter:
	case <-ctx.Done():
	}
	fmt.Println()
	return nil
}
