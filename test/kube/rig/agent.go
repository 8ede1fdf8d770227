// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// AgentNamespace is where the agent's Deployment lives.
const AgentNamespace = "tombolo-system"

// agentImage is the name that `make image` gives to the product's image.
const agentImage = "tombolo.local/tombolo:dev"

// DeployAgent runs the agent as a pod, from the product's own image and manifest, and waits until it is ready.
func (c *Cluster) DeployAgent(ctx context.Context) error { return c.DeployAgentWith(ctx) }

// DeployAgentWith is DeployAgent with further flags of 'tombolo agent manifest'.
func (c *Cluster) DeployAgentWith(ctx context.Context, flags ...string) error {
	begin := time.Now()
	// Controllers, scheduler and kubelet may each be waiting up to 30 s since kube-apiserver's last restart.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if c.rig.hub == nil {
		return errors.New("an agent needs the hub: call StartHub first")
	}
	archive := filepath.Join(c.rig.repo, "bin/tombolo-image.tar")
	if _, err := os.Stat(archive); err != nil {
		return fmt.Errorf("the product's image is missing: %w (run `make image`)", err)
	}
	if err := c.ImportImages(ctx, archive); err != nil {
		return err
	}
	manifest, err := c.rig.hub.Tombolo(ctx, append([]string{"agent", "manifest", "--cluster", c.Name, "--join", c.join,
		"--image", agentImage, "--namespace", AgentNamespace, "--replicas", "1",
		"--allow", PodRange, "--allow", ServiceRange, "--allow", NodeAddress + "/32:10250",
		"--allow", secondAddress + "/32:10250"}, flags...)...)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, strings.NewReader(manifest)); err != nil {
		return err
	}
	if err := await(ctx, "wait for the agent's pod to be ready", nil, func(ctx context.Context) error {
		text, err := c.Kubectl(ctx, "-n", AgentNamespace, "get", "pods", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.conditions[?(@.type=="Ready")].status} {.status.containerStatuses[*].state}{"\n"}{end}`)
		if err == nil && !strings.Contains(text, " Running True ") {
			err = fmt.Errorf("pods: %q", text)
		}
		return err
	}); err != nil {
		return fmt.Errorf("%w\n--- agent logs on the node\n%s", err, c.AgentLog())
	}
	c.rig.step(c.Name+": the agent runs as a pod and holds a session", begin)
	return nil
}

// AgentLog is the end of what the agent wrote, read from the node's disk: it needs no tunnel.
func (c *Cluster) AgentLog() string {
	logs, _ := filepath.Glob(filepath.Join(c.node.dir, "var/log/pods", AgentNamespace+"_*", "*", "*.log")) // well-formed
	var out strings.Builder
	for _, log := range logs {
		fmt.Fprintf(&out, "%s:\n%s\n", log, tail(log))
	}
	return out.String()
}

// AgentPID finds the running agent's process, numbered in the caller's PID namespace. It looks into the
// node's cgroups, so that it sees no other cluster's agent.
func (c *Cluster) AgentPID() (int, error) {
	for _, dir := range cgroupDirs(c.node.cgroup) {
		for _, pid := range cgroupProcs(dir) {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil {
				continue // it ended meanwhile
			}
			args := strings.Split(string(text), "\x00")
			if filepath.Base(args[0]) == "tombolo" && len(args) > 1 && args[1] == "agent" {
				return pid, nil
			}
		}
	}
	return 0, errors.New("no agent process runs on the node of " + c.Name)
}

// KillAgent kills the agent with SIGKILL, as a crash would, and waits until kubelet has started another. It
// returns when the new process exists.
func (c *Cluster) KillAgent(ctx context.Context) (restarted time.Time, err error) {
	old, err := c.AgentPID()
	if err != nil {
		return time.Time{}, err
	}
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		return time.Time{}, fmt.Errorf("kill the agent: %w", err)
	}
	err = await(ctx, "wait for kubelet to restart the agent", nil, func(context.Context) error {
		pid, err := c.AgentPID()
		if err == nil && pid == old {
			err = errors.New("the killed agent is still there")
		}
		return err
	})
	return time.Now(), err
}
