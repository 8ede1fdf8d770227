// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/manifest"
	"github.com/tombolo-io/tombolo/internal/route"
)

// unit maps "Section.Key" to its values, in order.
type unit map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	u, section := unit{}, ""
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' && strings.HasSuffix(line, "]") {
			section = line[1 : len(line)-1]
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section == "" {
			t.Fatalf("%s:%d: %q is neither a section nor KEY=VALUE", name, i+1, line)
		}
		u[section+"."+key] = append(u[section+"."+key], value)
	}
	return u
}

func (u unit) one(t *testing.T, key string) string {
	t.Helper()
	if len(u[key]) != 1 {
		t.Fatalf("%s stands %d times, want once", key, len(u[key]))
	}
	return u[key][0]
}

func units() []string {
	return []string{"tombolo-hub.service", "tombolo-agent.service", "tombolo-discovery.service", "tombolo-announce.service", meshUnit, edgeUnit,
		routeUnit}
}

const (
	meshUnit = "tombolo-mesh.service"
	edgeUnit = "tombolo-edge@.service"

	routeUnit = "tombolo-route.service"
)

// routeWalls are those of routed mode that differ. It changes links, routes and rules, opens /dev/net/tun, which
// PrivateDevices would hide, and keeps no state.
func routeWalls() map[string]string {
	return map[string]string{
		"CapabilityBoundingSet": "CAP_NET_ADMIN", "AmbientCapabilities": "CAP_NET_ADMIN",
		"PrivateDevices": "", "DevicePolicy": "closed", "DeviceAllow": "/dev/net/tun rw",
		"StateDirectoryMode": "", "RuntimeDirectoryMode": "0700",
	}
}

// edgeWalls are those of the edge that differ. It listens on port 443, keeps no state, and an instance that has handed
// its ports to the other one must not start again.
func edgeWalls() map[string]string {
	return map[string]string{
		"CapabilityBoundingSet": "CAP_NET_BIND_SERVICE", "AmbientCapabilities": "CAP_NET_BIND_SERVICE",
		"StateDirectoryMode": "", "LogsDirectoryMode": "0700", "RuntimeDirectoryMode": "0700",
		"RuntimeDirectoryPreserve": "yes", "Restart": "on-failure",
	}
}

// meshWalls are those of the mesh that differ. It is root for the files of root that it
// reads, and has of root's rights those over the network; it opens /dev/net/tun, which
// PrivateDevices would hide, and writes sysctls of its own link.
func meshWalls() map[string]string {
	return map[string]string{
		"CapabilityBoundingSet": "CAP_NET_ADMIN CAP_NET_RAW",
		"PrivateDevices":        "", "DevicePolicy": "closed", "DeviceAllow": "/dev/net/tun rw",
		"ProtectKernelTunables": "", "User": "root",
	}
}

// TestUnitsAreHardened names every wall of the sandbox, so that none is lost unseen.
func TestUnitsAreHardened(t *testing.T) {
	want := map[string]string{
		"NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "",
		"ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes",
		"ProtectClock": "yes", "ProtectControlGroups": "yes", "ProtectHostname": "yes",
		"ProtectKernelLogs": "yes", "ProtectKernelModules": "yes", "ProtectKernelTunables": "yes",
		"ProtectProc": "invisible", "RemoveIPC": "yes", "RestrictNamespaces": "yes",
		"RestrictRealtime": "yes", "RestrictSUIDSGID": "yes", "LockPersonality": "yes",
		"MemoryDenyWriteExecute": "yes", "SystemCallArchitectures": "native",
		"StateDirectoryMode": "0700", "Restart": "always", "ExecReload": "/bin/kill -HUP $MAINPID",
	}
	for _, name := range units() {
		u, want := readUnit(t, name), maps.Clone(want)
		walls := map[string]map[string]string{meshUnit: meshWalls(), edgeUnit: edgeWalls(), routeUnit: routeWalls()}[name]
		maps.Copy(want, walls)
		for key, value := range want {
			if _, differs := walls[key]; differs && value == "" {
				if got, there := u["Service."+key]; there {
					t.Errorf("%s: %s=%s, want none", name, key, got)
				}
			} else if got := u.one(t, "Service."+key); got != value {
				t.Errorf("%s: %s=%s, want %q", name, key, got, value)
			}
		}
		if filter := u["Service.SystemCallFilter"]; len(filter) < 2 || filter[0] != "@system-service" || filter[1] != "~@privileged" {
			t.Errorf("%s: SystemCallFilter is %q", name, filter)
		}
		families := strings.Fields(u.one(t, "Service.RestrictAddressFamilies"))
		for _, f := range families {
			if !slices.Contains([]string{"AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"}, f) {
				t.Errorf("%s: the address family %s is open", name, f)
			}
		}
		if umask := u.one(t, "Service.UMask"); umask != map[string]string{"tombolo-hub.service": "0022", "tombolo-agent.service": "0077", "tombolo-discovery.service": "0077", "tombolo-announce.service": "0077", meshUnit: "0077", edgeUnit: "0077", routeUnit: "0077"}[name] {
			t.Errorf("%s: UMask is %s", name, umask)
		}
		if user := u.one(t, "Service.User"); user == "root" && name != meshUnit || user == "" {
			t.Errorf("%s: runs as %q", name, user)
		}
		if u.one(t, "Unit.StartLimitIntervalSec") != "0" {
			t.Errorf("%s: systemd gives up after some restarts", name)
		}
		stop, err := time.ParseDuration(u.one(t, "Service.TimeoutStopSec"))
		if drain := manifest.HubDefaults().DrainTimeout; err != nil || stop <= drain {
			t.Errorf("%s: TimeoutStopSec is %s (%v), not above the drain of %s", name, stop, err, drain)
		}
	}
}

// TestUnitsWriteOnlyWhereTheyMay holds the directories of the command line
// against those that systemd makes.
func TestUnitsWriteOnlyWhereTheyMay(t *testing.T) {
	hub, agent, discovery := readUnit(t, "tombolo-hub.service"), readUnit(t, "tombolo-agent.service"), readUnit(t, "tombolo-discovery.service")
	for _, tc := range []struct {
		u               unit
		flag, directory string
	}{
		{hub, "--state-dir", "/var/lib/" + hub.one(t, "Service.StateDirectory")},
		{hub, "--run-dir", "/run/" + hub.one(t, "Service.RuntimeDirectory")},
		{agent, "--state-dir", "/var/lib/" + agent.one(t, "Service.StateDirectory")},
		{discovery, "--state-dir", "/var/lib/" + discovery.one(t, "Service.StateDirectory")},
		// The program makes the socket's folder, which is what systemd makes, too.
		{discovery, "--run-dir", "/run/" + strings.TrimSuffix(discovery.one(t, "Service.RuntimeDirectory"), "/discovery")},
	} {
		args := strings.Fields(tc.u.one(t, "Service.ExecStart"))
		i := slices.Index(args, tc.flag)
		if i < 0 || i+1 == len(args) || args[i+1] != tc.directory {
			t.Errorf("ExecStart %q does not have %s %s", args, tc.flag, tc.directory)
		}
	}
	name, file, ok := strings.Cut(agent.one(t, "Service.LoadCredential"), ":")
	if !ok || !filepath.IsAbs(file) || !slices.Contains(strings.Fields(agent.one(t, "Service.ExecStart")), "@%d/"+name) {
		t.Errorf("the join line is no credential: %v", agent["Service.LoadCredential"])
	}
	users, err := os.ReadFile("systemd/tombolo.sysusers.conf")
	if err != nil {
		t.Fatal(err)
	}
	// These are in the configuration, and the unit relies on what they are by default.
	announce := readUnit(t, "tombolo-announce.service")
	example, err := os.ReadFile("../cmd/tombolo/example/mesh.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"stateDir: /var/lib/" + announce.one(t, "Service.StateDirectory"), "runDir: /run/" + strings.TrimSuffix(announce.one(t, "Service.RuntimeDirectory"), "/announce")} {
		if !regexp.MustCompile(`(?m)^#?  +` + regexp.QuoteMeta(line) + `( |$)`).Match(example) {
			t.Errorf("by default it is not %s", line)
		}
	}
	mesh := readUnit(t, meshUnit)
	if got := "stateDir: /var/lib/" + mesh.one(t, "Service.StateDirectory"); !strings.Contains(string(example), got) {
		t.Errorf("by default it is not %s", got)
	}
	// Below the run directory are the sockets of the mesh and of the member that it is.
	if got := mesh.one(t, "Service.RuntimeDirectory"); got != "tombolo/mesh tombolo/announce" {
		t.Errorf("RuntimeDirectory is %s", got)
	}
	if args := mesh.one(t, "Service.ExecStart"); !strings.HasSuffix(args, " mesh --config "+mesh.one(t, "Unit.AssertPathExists")) {
		t.Errorf("ExecStart %q does not read the file that must be there", args)
	}
	if mesh.one(t, "Unit.Conflicts") != "tombolo-announce.service" {
		t.Error("one member may run twice")
	}
	edge := readUnit(t, edgeUnit)
	if args := edge.one(t, "Service.ExecStart"); !strings.HasSuffix(args, " edge --config "+edge.one(t, "Unit.AssertPathExists")+" --take-over") {
		t.Errorf("ExecStart %q does not read the file that must be there, or does not take over", args)
	}
	if got := edge.one(t, "Service.RuntimeDirectory"); got != "tombolo/edge" { // that of the example and of the default
		t.Errorf("RuntimeDirectory is %s", got)
	}
	routed := readUnit(t, routeUnit)
	if args := routed.one(t, "Service.ExecStart"); !strings.HasSuffix(args, " route --config "+routed.one(t, "Unit.AssertPathExists")) {
		t.Errorf("ExecStart %q does not read the file that must be there", args)
	}
	if got := "/run/" + routed.one(t, "Service.RuntimeDirectory"); got != filepath.Dir(route.AdminSocket(route.DefaultRunDir)) {
		t.Errorf("RuntimeDirectory is %s", got)
	}
	for _, u := range []unit{hub, discovery, announce, edge, routed} {
		if want := "u " + u.one(t, "Service.User") + " "; !strings.Contains(string(users), want) {
			t.Errorf("sysusers.d does not make the user %q", want)
		}
	}
	if agent.one(t, "Service.DynamicUser") != "yes" {
		t.Error("the agent's user is neither made nor dynamic")
	}
}

// TestSystemdTakesTheUnits asks systemd itself, where there is one: no error
// in a unit, and a sandbox that it calls good.
func TestSystemdTakesTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: nobody here runs units")
	}
	for _, name := range units() {
		data, err := os.ReadFile(filepath.Join("systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		// The program need not be installed where the test runs.
		text := strings.ReplaceAll(string(data), "/usr/local/bin/tombolo", "/bin/true")
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), analyze, "verify", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, name) || strings.Contains(line, "RestartSteps") || strings.Contains(line, "RestartMaxDelaySec") {
				continue // keys of systemd 254, and other units of this machine
			}
			t.Errorf("%s: systemd-analyze: %s", name, strings.TrimSpace(line))
		}
		// The threshold is ten times the exposure level; what is left is the
		// network itself and the host's file tree, read-only.
		threshold := "20"
		if name == meshUnit { // root, rights over the network, and sysctls
			threshold = "27"
		}
		out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold="+threshold, file).CombinedOutput()
		if err != nil {
			t.Errorf("%s is more exposed than %s tenths: %v\n%s", name, threshold, err, out)
		}
	}
}
