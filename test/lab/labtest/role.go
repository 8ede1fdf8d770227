// SPDX-License-Identifier: Apache-2.0

package labtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/lab"
)

// HubReady asks a hub from its own host; state is the folder with its CA.
func HubReady(h *lab.Host, state string) error {
	ca, err := os.ReadFile(filepath.Join(state, "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return Ready(h, "https://127.0.0.1:8444/readyz", pool)
}

// Ready asks a role from its own host: nil is a 200. For http, trust is nil.
func Ready(h *lab.Host, url string, trust *x509.CertPool) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DialContext: h.DialContext, TLSClientConfig: &tls.Config{RootCAs: trust}, DisableKeepAlives: true,
	}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

// HandOver gives the logs of a folder to the suite, which looks for secrets in them.
func HandOver(t testing.TB, dir string) {
	t.Helper()
	for _, log := range logs(t, dir) {
		if err := runtest.WroteFile(filepath.Base(log)+" of "+t.Name(), log); err != nil {
			t.Error(err)
		}
	}
}

// TellLogs shows the ends of the logs of a folder.
func TellLogs(t testing.TB, dir string) {
	t.Helper()
	const end = 60 // lines
	for _, path := range logs(t, dir) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Log(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		t.Logf("--- end of %s\n%s", filepath.Base(path), strings.Join(lines[max(0, len(lines)-end):], "\n"))
	}
}

func logs(t testing.TB, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Error(err)
	}
	return list
}

// Eventually asks until the answer is nil, and returns how long that took. It gives up when the process, if one is
// named, has ended.
func Eventually(t testing.TB, what string, within time.Duration, p *lab.Process, ask func() error) time.Duration {
	t.Helper()
	var ended <-chan struct{}
	if p != nil {
		ended = p.Done()
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; {
		err := ask()
		took := time.Since(begin)
		if err == nil {
			return took
		}
		if took > within {
			t.Fatalf("not within %v: %s: %v", within, what, err)
		}
		select {
		case <-ended:
			t.Fatalf("waiting until %s: the process has ended: %v", what, p.Wait())
		case <-tick.C:
		}
	}
}

// Run runs a program on a host, with more in its environment, and returns what it prints.
func Run(h *lab.Host, within time.Duration, env []string, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = &stdout, &stderr, append(Environment(), env...), "/"
	if err := h.Run(ctx, cmd); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Environment is ours without what would lead the programs elsewhere.
func Environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "TOMBOLO_") && !strings.HasSuffix(strings.ToUpper(name), "_PROXY") && name != "NODE_NAME" {
			env = append(env, entry)
		}
	}
	return env
}

// Start starts a program whose output is appended to a log: as root, or confined.
func Start(t testing.TB, h *lab.Host, log string, confined *lab.Confinement, line ...string) *lab.Process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = out, out, "/", Environment()
	var p *lab.Process
	if confined != nil {
		p, err = lab.StartConfined(h, cmd, *confined)
	} else {
		p, err = h.Start(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}
