// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// machine is a pretended Debian: a PATH of stubs, on which gcc and protoc are
// missing until apt-get "installs" them.
type machine struct {
	t      *testing.T
	bin    string
	policy string
}

// Words of the stubs' log, in order.
const aptStub = `#!/bin/bash
case "$*" in
  *-s*install*) [[ -z $REMOVES ]] || echo "Remv $REMOVES [1.0]"; exit 0 ;;
  *update*) echo update >>"$LOG"; exit 0 ;;
esac
if [[ -e $POLICY ]]; then echo "install held" >>"$LOG"; else echo "install free" >>"$LOG"; fi
[[ -z $HANG ]] || { echo >"$HANG"; kill -TERM $PPID; exit 1; }
[[ -z $BROKEN ]] || exit 100
: >"$STATE/installed"
for name in gcc protoc; do printf '#!/bin/sh\n' >"$BIN/$name"; chmod 755 "$BIN/$name"; done
`

const systemctlStub = `#!/bin/bash
case $1 in
  list-units) [[ ! -e $STATE/installed ]] || echo "containerd.service loaded active running x"; echo "cron.service loaded active running x" ;;
  list-unit-files) echo "cron.service enabled enabled" ;;
  stop|disable) echo "$*" >>"$LOG" ;;
esac
`

func newMachine(t *testing.T) *machine {
	t.Helper()
	if _, err := os.Stat("/var/lib/dpkg"); err != nil {
		t.Skip("tools/deps installs on Debian only, and this is none")
	}
	m := &machine{t: t, bin: t.TempDir(), policy: filepath.Join(t.TempDir(), "policy-rc.d")}
	for _, name := range []string{"bash", "sh", "sed", "awk", "sort", "comm", "grep", "flock", "rm", "chmod", "cat"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.stub("apt-get", aptStub)
	m.stub("apt-cache", "#!/bin/bash\necho '  Candidate: 1.0'\n")
	m.stub("dpkg", "#!/bin/bash\n")
	m.stub("id", "#!/bin/bash\necho ${UID_STUB:-0}\n")
	m.stub("systemctl", systemctlStub)
	return m
}

func (m *machine) stub(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.bin, name), []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// deps runs the script and gives its words, the stubs' log and the exit code.
func (m *machine) deps(env ...string) (said, log string, code int) {
	m.t.Helper()
	state := m.t.TempDir()
	logFile := filepath.Join(state, "log")
	cmd := exec.Command("/bin/bash", "../deps", "unit")
	cmd.Env = append([]string{"PATH=" + m.bin, "BIN=" + m.bin, "STATE=" + state, "LOG=" + logFile,
		"POLICY=" + m.policy, "TOMBOLO_POLICY_RC_D=" + m.policy}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	data, err := os.ReadFile(logFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(out), strings.TrimSpace(string(data)), cmd.ProcessState.ExitCode()
}

func (m *machine) policyIs(want string) {
	m.t.Helper()
	data, err := os.ReadFile(m.policy)
	switch {
	case want == "" && !errors.Is(err, os.ErrNotExist):
		m.t.Errorf("a policy-rc.d is left: %q, %v", data, err)
	case want != "" && string(data) != want:
		m.t.Errorf("policy-rc.d is %q (%v), want %q", data, err, want)
	}
}

func (m *machine) write(text string) {
	m.t.Helper()
	if err := os.WriteFile(m.policy, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func TestDepsInstallsWhatIsMissing(t *testing.T) {
	m := newMachine(t)
	said, log, code := m.deps()
	if code != 0 || !strings.HasPrefix(log, "install held") {
		t.Fatalf("exit %d, log %q\n%s", code, log, said)
	}
	if !strings.Contains(said, "installing gcc") || !strings.Contains(log, "disable --quiet containerd.service") || strings.Contains(log, "cron") {
		t.Errorf("want the packages named, the new service off and the old one untouched\nlog %q\n%s", log, said)
	}
	m.policyIs("")
	if said, log, code = m.deps(); code != 0 || log != "" || said != "" {
		t.Errorf("the second run does something: exit %d, log %q\n%s", code, log, said)
	}
}

func TestDepsUpdatesOnceAndCleansUp(t *testing.T) {
	m := newMachine(t)
	said, log, code := m.deps("BROKEN=1")
	if code != 1 || log != "install held\nupdate\ninstall held" || !strings.Contains(said, "error: apt-get could not install") {
		t.Errorf("exit %d, log %q\n%s", code, log, said)
	}
	m.policyIs("")
}

func TestDepsRespectsAPolicy(t *testing.T) {
	const theirs = "#!/bin/sh\nexit 0\n"
	m := newMachine(t)
	m.write(theirs)
	if said, log, code := m.deps(); code != 0 || !strings.HasPrefix(log, "install held") {
		t.Errorf("exit %d, log %q\n%s", code, log, said)
	}
	m.policyIs(theirs)
}

func TestDepsRemovesItsOwnOldPolicy(t *testing.T) {
	m := newMachine(t)
	m.write("#!/bin/sh\n# made by tools/deps of tombolo, process 1\nexit 101\n")
	if said, _, code := m.deps(); code != 0 || !strings.Contains(said, "interrupted run") {
		t.Errorf("exit %d\n%s", code, said)
	}
	m.policyIs("")
}

func TestDepsCleansUpAfterASignal(t *testing.T) {
	m := newMachine(t)
	if said, _, code := m.deps("HANG=" + filepath.Join(t.TempDir(), "reached")); code != 143 {
		t.Errorf("exit %d, want 143\n%s", code, said)
	}
	m.policyIs("")
}

func TestDepsRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, env, says string
	}{
		{"without root", "UID_STUB=1000", "installing needs root"},
		{"to remove a package", "REMOVES=docker.io", "would remove docker.io"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			said, log, code := m.deps(tc.env)
			if code != 1 || log != "" || !strings.Contains(said, tc.says) || !strings.Contains(said, "hint:") {
				t.Errorf("exit %d, log %q\n%s", code, log, said)
			}
		})
	}
	t.Run("another system", func(t *testing.T) {
		m := newMachine(t)
		for _, name := range []string{"apt-get", "dpkg"} {
			if err := os.Remove(filepath.Join(m.bin, name)); err != nil {
				t.Fatal(err)
			}
		}
		said, _, code := m.deps()
		if code != 1 || !strings.Contains(said, "not a Debian machine") {
			t.Errorf("exit %d\n%s", code, said)
		}
	})
}
