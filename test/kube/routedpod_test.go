// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/manifest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// routedPod: a pod of a workload that is patched reaches pods of a cluster by mapped addresses. Its own container
// starts when the routes are in place, and has no privilege. The cluster is its own one: through hub and agent all the
// same, because no address is the one that it has there.
func (x *cluster) routedPod(t *testing.T) {
	x.useEgress(t, rig.GRPCUDS)
	file := filepath.Join(t.TempDir(), x.Name+".pem")
	ctx := x.within(t, 4*time.Minute)
	if _, err := x.hub.Tombolo(ctx, "certificate", "issue", "--role", "route", "--cluster", x.Name, "--name", "caller",
		"--out", file); err != nil {
		t.Fatal(err)
	}
	x.kubectl(t, "create", "secret", "generic", "caller", "--from-file="+file)
	backend := strings.TrimSpace(x.kubectl(t, "get", "pod", "backend", "-o", "jsonpath={.status.podIP}"))
	mapped := strings.Replace(backend, "10.244.", "240.2.", 1)
	x.apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: caller}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: caller}}
  template:
    metadata: {labels: {app: caller}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: `+rig.Image+`
        imagePullPolicy: Never
        command: [sh, -c, "ls /sys/class/net >/first; exec sleep 3600"]
`)
	o := manifest.RouteDefaults()
	o.Image, o.ImagePullPolicy, o.Namespace = "tombolo.local/tombolo:dev", "Never", "default"
	o.Kind, o.Workload, o.Cluster, o.Secret = manifest.RouteSidecar, "caller", x.Name, "caller"
	o.Hubs, o.Maps = []string{rig.HubAddress + ":" + rig.HubPort}, []string{"10.244.0.0/16=240.2.0.0/16"}
	o.DNS, o.Zone, o.Nameservers = "10.244.255.254", "c1.internal", []string{"192.0.2.53"}
	o.Only = manifest.RouteObjects
	objects, err := manifest.Route(o)
	if err != nil {
		t.Fatal(err)
	}
	x.apply(t, string(objects))
	o.Only = manifest.RoutePatch
	patch, err := manifest.Route(o)
	if err != nil {
		t.Fatal(err)
	}
	patchFile := filepath.Join(t.TempDir(), "patch.yaml")
	if err := os.WriteFile(patchFile, patch, 0o644); err != nil {
		t.Fatal(err)
	}
	x.kubectl(t, "patch", "deployment", "caller", "--patch-file", patchFile)
	defer func() {
		if t.Failed() {
			out, _ := x.Kubectl(ctx, "describe", "pods", "-l", "app=caller")
			log, _ := x.Kubectl(ctx, "logs", "deploy/caller", "-c", "tombolo-route")
			t.Logf("%s\n%s", out, log)
		}
		x.kubectl(t, "delete", "deployment/caller", "configmap/tombolo-route", "secret/caller")
	}()
	// Controllers, scheduler and kubelet wait for up to a minute each since kube-apiserver's last restart.
	if out, err := x.Kubectl(ctx, "rollout", "status", "deployment/caller", "--timeout=180s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	read := func(file string) string {
		return x.kubectl(t, "exec", "deploy/caller", "-c", "main", "--", "cat", file)
	}
	if got := read("/first"); !strings.Contains(got, "tombolo-route") {
		t.Errorf("when the container started there was: %s", got)
	}
	out, err := exec.CommandContext(ctx, "nsenter", "-t", routed(t), "-n", "sh", "-c",
		`printf 'GET /echo?word=hello HTTP/1.0\r\n\r\n' | socat -t 10 - TCP:`+mapped+":8080").CombinedOutput()
	if err != nil || !strings.Contains(string(out), x.Name+" echoes hello") {
		t.Errorf("%s: %v\n%s", mapped, err, out)
	}
	if got := read("/etc/resolv.conf"); !strings.Contains(got, "nameserver 192.0.0.53\nnameserver 192.0.2.53\n") {
		t.Errorf("resolv.conf of the pod:\n%s", got)
	}
	status := x.kubectl(t, "exec", "deploy/caller", "-c", "tombolo-route", "--", "tombolo", "route", "status")
	if !strings.Contains(status, "/cluster/"+x.Name+"/route/caller") {
		t.Errorf("%s", status)
	}
	own, err := os.ReadFile(filepath.Join("/proc", routed(t), "root", "etc/resolv.conf"))
	if err != nil || !strings.HasPrefix(string(own), "nameserver 192.0.2.53\n") {
		t.Errorf("the program itself asks %s, %v", own, err)
	}
}

// routed is the process of the program in the pod.
func routed(t *testing.T) string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		args, err := os.ReadFile(line)
		if err == nil && strings.Contains(string(args), "\x00route\x00--config\x00/etc/tombolo/config/") {
			return filepath.Base(filepath.Dir(line))
		}
	}
	t.Fatal("it does not run")
	return ""
}
