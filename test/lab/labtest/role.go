// SPDX-License-Identifier: Apache-2.0

package labtest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
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
