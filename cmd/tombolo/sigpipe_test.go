// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestHubOutlivesTheReaderOfItsRecords: records go to standard output, and whoever
// reads them ends. The hub goes on, and so do its streams.
func TestHubOutlivesTheReaderOfItsRecords(t *testing.T) {
	dir := runtest.Dir(t)
	config := filepath.Join(dir, "hub.yaml")
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\naudit: {path: \"-\"}\nclusters: [{name: c1}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	w := &world{dir: dir, listen: runtest.Address(8443), health: runtest.Address(8445), cluster: "c1"}
	cmd := exec.Command(os.Args[0], "hub", "--config", config, "--state-dir", filepath.Join(dir, "hub"), "--run-dir", filepath.Join(dir, "run"),
		"--listen", w.listen, "--admin-listen", runtest.Address(8444), "--advertise", w.listen)
	cmd.Stdout = writer
	w.hub = startCommand(t, cmd)
	writer.Close()
	w.hub.Says(t, "hub is ready")
	t.Setenv("TOMBOLO_ADMIN_SOCKET", filepath.Join(dir, "run/admin/hub.sock"))
	w.join = strings.TrimSpace(strings.TrimPrefix(must(t, "token", "create", "--cluster", "c1"), "tombolo agent --join "))
	w.agent = w.runAgent(t)

	stream := startProcess(t, "connect", "c1", echo(t))
	io.WriteString(stream.Input, "before")
	runtest.Eventually(t, "the echo", func() bool { return stream.Out.String() == "before" })
	reader.Close()
	wantExit(t, tombolo(t, "connect", "c1", "169.254.169.254:80"), 4, "policy_denied") // its record finds no reader
	w.hub.Says(t, "audit")
	io.WriteString(stream.Input, " and after")
	runtest.Eventually(t, "the stream goes on", func() bool { return stream.Out.String() == "before and after" })
	select {
	case <-w.hub.Done():
		t.Fatalf("the hub has ended: %v", w.hub.ProcessState)
	default:
	}
}
