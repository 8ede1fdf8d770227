// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/agent"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// startFails makes and runs a hub that must not come up.
func startFails(t *testing.T, s hubSpec, code fault.Code) *fault.Fault {
	t.Helper()
	h, err := newHub(t, s)
	if err == nil {
		p := start(h.Run)
		defer p.stop()
		select {
		case <-p.done:
			err = p.err
		case <-h.Ready():
			t.Fatalf("it started; want %s", code)
		case <-time.After(runtest.Patience):
			t.Fatal("it neither starts nor fails")
		}
	}
	f := wantFault(t, err, code)
	if f.Next == "" {
		t.Errorf("%s says nothing to do: %s", code, f.Error())
	}
	return f
}

// listing is what a folder holds.
func listing(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		out = append(out, path+" "+d.Type().String())
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

func free(t *testing.T, address string) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Errorf("the failed start keeps %s: %v", address, err)
		return
	}
	ln.Close()
}

func TestPortInUse(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	second := runtest.Dir(t)
	f := startFails(t, hubSpec{dir: second, listen: h.listen}, fault.CodeAddressBusy)
	if !strings.Contains(f.Error(), h.listen) {
		t.Errorf("which one? %s", f.Error())
	}
	if got := listing(t, filepath.Join(second, "run")); len(got) > 0 {
		t.Errorf("the failed start left %v", got)
	}
	// The admin port alone: the main port must be let go.
	own := runtest.Address(8443)
	ln, err := net.Listen("tcp", strings.TrimSuffix(own, "8443")+"8444")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	startFails(t, hubSpec{dir: runtest.Dir(t), listen: own}, fault.CodeAddressBusy)
	free(t, own)
	othersServed(t, h)
}

func TestStateHeldByAnotherHub(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	own := runtest.Address(8443)
	startFails(t, hubSpec{dir: h.dir, listen: own}, fault.CodeStateBusy)
	free(t, own)
	othersServed(t, h)
}

// A second hub on the same run directory, with a state of its own.
func TestSocketHeldByAnotherHub(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	socket := h.socket("c1", hub.ProtocolConnect)
	own := runtest.Address(8443)
	dir := runtest.Dir(t)
	if err := os.Symlink(filepath.Join(h.dir, "run"), filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	before := strings.Join(listing(t, filepath.Join(h.dir, "run")), "\n")
	startFails(t, hubSpec{dir: dir, listen: own}, fault.CodeSocketBusy)
	free(t, own)
	if after := strings.Join(listing(t, filepath.Join(h.dir, "run")), "\n"); after != before {
		t.Errorf("the run directory changed from\n%s\nto\n%s", before, after)
	}
	// The same for the socket of a cluster: the admin socket of the second is elsewhere.
	own = runtest.Address(8443)
	dir = runtest.Dir(t)
	startFails(t, hubSpec{dir: dir, listen: own, extra: "clusters:\n- name: c0\n  sockets: [{protocol: connect}]\n" +
		"- name: c1\n  sockets: [{protocol: connect, path: " + socket + "}]\n"}, fault.CodeSocketBusy)
	free(t, own)
	if exists(filepath.Join(dir, "run/clusters/c0/connect.sock")) || exists(hub.AdminSocket(filepath.Join(dir, "run"))) {
		t.Error("the failed start left sockets behind")
	}
	othersServed(t, h)
}

func TestStaleSocketIsTakenOver(t *testing.T) {
	dir := runtest.Dir(t)
	stale := []string{filepath.Join(dir, "run/clusters/c1/connect.sock"), hub.AdminSocket(filepath.Join(dir, "run"))}
	for _, path := range stale {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
	}
	h, _ := pair(t, hubSpec{dir: dir, extra: "clusters:\n- name: c1\n  sockets: [{protocol: connect}]\n"}, agentSpec{})
	othersServed(t, h)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	for _, path := range stale {
		if exists(path) {
			t.Errorf("%s outlived the hub", path)
		}
	}
}

func TestWhatIsNoSocketIsLeftAlone(t *testing.T) {
	dir := runtest.Dir(t)
	path := filepath.Join(dir, "precious")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	startFails(t, hubSpec{dir: dir, extra: "clusters:\n- name: c1\n  sockets: [{protocol: connect, path: " + path + "}]\n"}, fault.CodeSocketPath)
	if data, err := os.ReadFile(path); string(data) != "precious" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}

func TestSocketPathTooLong(t *testing.T) {
	long := "/tmp/" + strings.Repeat("d", limit.SocketPath)
	_, err := hub.ParseConfig("hub.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nclusters:\n- name: c1\n  sockets: [{protocol: connect, path: "+long+"}]\n"))
	if f := wantFault(t, err, fault.CodeConfig); !strings.Contains(f.Why, "at most 107") {
		t.Errorf("unclear: %s", f.Error())
	}
	h := startHub(t, hubSpec{})
	var none struct{}
	err = h.admin.Call(runtest.Within(t), "POST", "/v1/tokens", map[string]any{"cluster": strings.Repeat("c", 63), "ttlSeconds": 60, "uses": 1}, &none)
	if err != nil && !fault.Has(err, fault.CodeHubAway) {
		t.Fatal(err)
	}
}

// A state directory that cannot be written. Root is stopped by no mode, so the
// place is one that cannot hold a folder at all.
func TestStateDirectoryIsNotWritable(t *testing.T) {
	file := filepath.Join(runtest.Dir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := startFails(t, hubSpec{dir: file}, fault.CodeStateAccess)
	if !strings.Contains(f.Error(), file) {
		t.Errorf("which one? %s", f.Error())
	}
	h := startHub(t, hubSpec{})
	mustEnd(t, runAgent(t, agentSpec{join: h.token("c1").Join, dir: filepath.Join(file, "agent")}), fault.CodeStateAccess)
	var tokens struct {
		Tokens []struct{ Used int } `json:"tokens"`
	}
	h.call("GET", "/v1/tokens", nil, &tokens)
	if len(tokens.Tokens) != 1 || tokens.Tokens[0].Used != 0 {
		t.Errorf("the token was spent on an agent that cannot keep its key: %+v", tokens)
	}
}

func TestStateOfANewerVersion(t *testing.T) {
	h, a := pair(t, hubSpec{}, agentSpec{})
	a.stop()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.dir, "state", "hub.db")
	// As a newer release would write it: the key, a checksum over place and value, the value.
	record := func(format string) []byte {
		sum := crc32.Checksum([]byte("meta\x00format\x00"+format), crc32.MakeTable(crc32.Castagnoli))
		return append(binary.BigEndian.AppendUint32([]byte("format"), sum), format...)
	}
	old := read(t, path)
	if !bytes.Contains(old, record("2")) {
		t.Fatal("the state does not hold its format where this test looks")
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(old, record("2"), record("9")), 0o600); err != nil {
		t.Fatal(err)
	}
	before := read(t, path)
	own := runtest.Address(8443)
	startFails(t, hubSpec{dir: h.dir, listen: own}, fault.CodeStateVersion)
	free(t, own)
	if !bytes.Equal(before, read(t, path)) {
		t.Error("the newer state was changed")
	}

	file := filepath.Join(a.dir, "identity.json")
	newer := bytes.Replace(read(t, file), []byte(`"version": 1`), []byte(`"version": 99`), 1)
	if err := os.WriteFile(file, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, runAgent(t, agentSpec{dir: a.dir}), fault.CodeStateVersion)
	if !bytes.Equal(newer, read(t, file)) {
		t.Error("the newer identity was changed")
	}
	if err := os.WriteFile(file, []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, runAgent(t, agentSpec{dir: a.dir}), fault.CodeStateCorrupt)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestHealthPortInUse(t *testing.T) {
	h, a := pair(t, hubSpec{}, agentSpec{})
	second := runAgent(t, agentSpec{join: h.token("c1").Join, health: a.health})
	if f := mustEnd(t, second, fault.CodeAddressBusy); !strings.Contains(f.Next, "--health-listen") {
		t.Errorf("no next step: %s", f.Explain())
	}
	othersServed(t, h)
}

// A configuration lists all of its problems with their place.
func TestConfigurationListsEveryProblem(t *testing.T) {
	text := `apiVersion: tombolo.dev/v1alpha1
kind: HubConfig
listen: nowhere
colour: red
drainTimeout: soon
certificates:
  agentLife: -1h
clusters:
- name: c1
  sockets: [{protocol: smtp}]
- name: c1
- name: C_2
`
	_, err := hub.ParseConfig("hub.yaml", []byte(text))
	f := wantFault(t, err, fault.CodeConfig)
	for _, want := range []string{
		"hub.yaml:3:9: listen: ", "hub.yaml:4:1: colour: ", "hub.yaml:5:15: drainTimeout: ", "hub.yaml:7:14: certificates.agentLife: ",
		"hub.yaml:10:24: clusters[0].sockets[0].protocol: ", "hub.yaml:11:9: clusters[1].name: ", "hub.yaml:12:9: clusters[2].name: ",
	} {
		if !strings.Contains(f.Why, want) {
			t.Errorf("no %q in:%s", want, f.Why)
		}
	}
	for name, bad := range map[string]string{
		"other kind": "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n", "other version": "apiVersion: tombolo.dev/v9\nkind: HubConfig\n",
		"empty": "", "no YAML": "{", "tab": "\tkind: x", "list": "- a\n",
	} {
		if _, err := hub.ParseConfig("hub.yaml", []byte(bad)); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := agent.ParseConfig("a.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nallow: [nonsense/99]\n")); !fault.Has(err, fault.CodeConfig) {
		t.Errorf("bad CIDR: %v", err)
	}
}

// Owner, group and mode are as configured from the first moment.
func TestSocketOwnerAndMode(t *testing.T) {
	extra := "sockets: {mode: \"0660\", group: \"" + itoa(os.Getgid()) + "\"}\nclusters:\n- name: c1\n  sockets: [{protocol: connect}, {protocol: konnectivity, mode: \"0600\"}]\n"
	h := startHub(t, hubSpec{extra: extra})
	for path, mode := range map[string]fs.FileMode{"clusters/c1/connect.sock": 0o660, "clusters/c1/konnectivity.sock": 0o600, "admin/hub.sock": 0o600} {
		info, err := os.Stat(filepath.Join(h.cfg.RunDir, path))
		if err != nil || info.Mode().Perm() != mode || info.Sys().(*syscall.Stat_t).Gid != uint32(os.Getgid()) {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if info, err := os.Stat(filepath.Join(h.cfg.RunDir, "admin")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the admin directory: %v, %v", info, err)
	}
	if info, err := os.Stat(h.cfg.StateDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the state directory: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(h.cfg.StateDir, "hub.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the state: %v, %v", info, err)
	}
}
