// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestNodesFindEachOther runs the programs of both sides: nodes that speak either
// protocol with a service over TLS, or both with two services, see each other; a
// service that was killed and began without its state wipes nobody; who leaves is
// gone at once where that can be proved.
func TestNodesFindEachOther(t *testing.T) {
	for _, protocol := range []string{"native", "sidero", "auto"} {
		t.Run(protocol, func(t *testing.T) { findEachOther(t, protocol) })
	}
}

func findEachOther(t *testing.T, protocol string) {
	dir := runtest.Dir(t)
	listen := runtest.Address(8446)
	service := func(state string) *process {
		file := filepath.Join(dir, "discovery.yaml")
		text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\nsettle: 2s\ntls: {self: true, hosts: [%q]}\n", strings.TrimSuffix(listen, ":8446"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := startProcess(t, "discovery", "--config", file, "--state-dir", filepath.Join(dir, state), "--run-dir", filepath.Join(dir, "run"),
			"--listen", listen, "--admin-listen", strings.TrimSuffix(listen, "8446")+"8447")
		p.Says(t, "discovery service is ready")
		return p
	}
	first := service("first")
	t.Setenv("TOMBOLO_DISCOVERY_SOCKET", filepath.Join(dir, "run/discovery/discovery.sock"))
	var st admin.DiscoveryStatus
	if err := json.Unmarshal([]byte(must(t, "discovery", "status", "-o", "json")), &st); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	must(t, "discovery", "secret", "create", secret)
	node := func(name string) (config string) {
		config = filepath.Join(dir, name+".yaml")
		text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {id: meeting, secretFiles: [%q]}\nnode: {name: %s, stateDir: %q, runDir: %q}\n"+
			"announce: {endpoints: ['192.0.2.7:51820'], role: worker}\nhealthListen: %q\nsources: {services: [{url: 'https://%s', protocol: %s, pin: %q}]}\n",
			secret, name, filepath.Join(dir, name), filepath.Join(dir, "run-"+name), runtest.Address(8448), listen, protocol, st.CAPin)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return config
	}
	a, b := node("a"), node("b")
	pa := startProcess(t, "discovery", "announce", "--config", a)
	pb := startProcess(t, "discovery", "announce", "--config", b, "--leave")
	sees := func(config, what string, has bool) {
		t.Helper()
		var o outcomeOf
		runtest.Eventually(t, fmt.Sprintf("%s: %q is there: %v", filepath.Base(config), what, has), func() bool {
			o = tombolo(t, "discovery", "members", "--config", config)
			return strings.Contains(o.out, what) == has
		})
	}
	looker := node("looker")
	for _, who := range []string{"a", "b"} {
		sees(looker, "\n"+who+" ", true)
	}
	sees(looker, "192.0.2.7:51820", true)

	first.Process.Signal(syscall.SIGKILL)
	first.Exit(t)
	os.RemoveAll(filepath.Join(dir, "first", "members"))
	os.RemoveAll(filepath.Join(dir, "first", "members.old"))
	again := service("first") // the CA stays, the members do not
	for _, who := range []string{"a", "b"} {
		sees(looker, "\n"+who+" ", true)
	}
	pb.Process.Signal(syscall.SIGTERM)
	if code := pb.Exit(t); code != 0 {
		t.Errorf("the node that left exits with %d\n%s", code, pb.Err.String())
	}
	if protocol != "sidero" { // there a removal is proved by nobody, and is doubted
		sees(looker, "\nb ", false)
		sees(looker, "\na ", true)
	}
	for _, p := range []*process{pa, again} {
		p.Process.Signal(syscall.SIGTERM)
		if code := p.Exit(t); code != 0 {
			t.Errorf("exit %d\n%s", code, p.Err.String())
		}
	}
}
