// SPDX-License-Identifier: Apache-2.0

package system

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/agent"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// reload parses the hub's configuration with other clusters and hands it over.
func (h *testHub) reload(extra string) error {
	h.t.Helper()
	adminListen := strings.TrimPrefix(h.adminURL, "https://")
	cfg, err := hub.ParseConfig("hub.yaml", []byte(hubYAML(h.dir, h.listen, adminListen, extra)))
	if err == nil {
		err = h.Reload(cfg)
	}
	h.CountReload(err)
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func TestReloadDropsNoStream(t *testing.T) {
	const c1 = "clusters:\n- name: c1\n  sockets: [{protocol: connect, mode: \"0600\"}]\n"
	const c2 = "- name: c2\n  sockets: [{protocol: connect}, {protocol: konnectivity}]\n"
	h, _ := pair(t, hubSpec{extra: c1}, agentSpec{})
	to := runtest.Echo(t)
	run := h.cfg.RunDir
	one, two := filepath.Join(run, "clusters/c1/connect.sock"), filepath.Join(run, "clusters/c2/connect.sock")
	live, err := dialConnect(runtest.Within(t), one, to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	mustEcho(t, live, "before")

	if err := h.reload(c1 + c2); err != nil {
		t.Fatal(err)
	}
	if _, err := dialConnect(runtest.Within(t), two, to.Addr()); asRefused(t, err).code != fault.CodeNoAgent {
		t.Errorf("the new cluster's socket: %v", err)
	}
	mustEcho(t, live, "after a cluster came")

	// Another mode is set in place.
	if err := h.reload(strings.Replace(c1, "0600", "0666", 1) + c2); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(one); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("mode: %v, %v", info, err)
	}
	mustEcho(t, live, "after another mode")

	// A bad file changes nothing at all, whether it cannot be read or not be done.
	blocked := filepath.Join(h.dir, "blocked")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"unknown key":     c1 + "colour: red\n",
		"bad duration":    c1 + "drainTimeout: soon\n",
		"no cluster name": "clusters: [{name: \"Not A Name\"}]\n",
		"path changes hands beside one that is no place": "clusters:\n- name: c2\n  sockets: [{protocol: connect, path: " + one + "}]\n- name: c4\n  sockets: [{protocol: connect, path: " + blocked + "/x.sock}]\n",
		"path is no place": "clusters:\n- name: c3\n  sockets: [{protocol: connect}]\n- name: c4\n  sockets: [{protocol: connect, path: " + blocked + "/x.sock}]\n",
	} {
		if err := h.reload(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if !exists(one) || !exists(two) {
			t.Errorf("%s: a socket of the last good configuration is gone", name)
		}
		if exists(filepath.Join(run, "clusters/c3/connect.sock")) {
			t.Errorf("%s: half of the bad configuration is in force", name)
		}
		if strings.HasPrefix(name, "path changes hands") { // which costs its streams, and gives the socket back
			live.Close()
			if live, err = dialConnect(runtest.Within(t), one, to.Addr()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			defer live.Close()
		}
		mustEcho(t, live, "after "+name)
	}

	if err := h.reload(c1); err != nil {
		t.Fatal(err)
	}
	if exists(two) {
		t.Error("the socket of the removed cluster is still there")
	}
	mustEcho(t, live, "after a cluster went")
	m := family(t, h.reg, "tombolo_hub_config_reloads_total")
	if m == nil || len(m.GetMetric()) < 2 {
		t.Errorf("reloads are not counted by outcome: %v", m)
	}
}

// Removal ends the streams of the removed socket, and of no other.
func TestRemovedSocketEndsItsStreams(t *testing.T) {
	const both = "clusters:\n- name: c1\n  sockets: [{protocol: connect}, {protocol: connect, path: %DIR%/second.sock}]\n"
	dir := runtest.Dir(t)
	extra := strings.ReplaceAll(both, "%DIR%", dir)
	h, _ := pair(t, hubSpec{dir: dir, extra: extra}, agentSpec{})
	to := runtest.Echo(t)
	stay, err := dialConnect(runtest.Within(t), filepath.Join(h.cfg.RunDir, "clusters/c1/connect.sock"), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer stay.Close()
	leave, err := dialConnect(runtest.Within(t), filepath.Join(dir, "second.sock"), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer leave.Close()
	if err := h.reload("clusters:\n- name: c1\n  sockets: [{protocol: connect}]\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := leave.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the stream of the removed socket: %v", err)
	}
	mustEcho(t, stay, "stays")
}

// An agent takes new rules for new streams at once, and ends live ones that they refuse.
func TestAgentReloadsItsRules(t *testing.T) {
	h, a := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	live, other := openVia(t, h, to), runtest.Echo(t)
	stays := openVia(t, h, other)
	a.Reload(agentConfig(t, agentSpec{dir: a.dir, allow: []string{"127.0.0.0/16", "10.0.0.0/8"}}, a.health))
	mustEcho(t, live, "another rule allows it")
	a.Reload(agentConfig(t, agentSpec{dir: a.dir, allow: []string{"10.0.0.0/8", other.Addr()}}, a.health))
	live.SetReadDeadline(time.Now().Add(runtest.Patience))
	if n, err := live.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Errorf("a live stream that no rule allows any more: %d, %v", n, err)
	}
	mustEcho(t, stays, "a live stream that a rule allows")
	_, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), to.Addr())
	wantRefused(t, err, http.StatusForbidden, fault.CodePolicyDenied)
	_, err = agent.ParseConfig("agent.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nallow: [10.0.0.0/33, 10.0.0.1/8]\nhub: x\n"))
	f := wantFault(t, err, fault.CodeConfig)
	for _, say := range []string{"agent.yaml:3:9: allow[0]", "agent.yaml:3:22: allow[1]", "10.0.0.0/8", "agent.yaml:4:1: hub"} {
		if !strings.Contains(f.Why, say) {
			t.Errorf("%q does not say %q", f.Why, say)
		}
	}
}
