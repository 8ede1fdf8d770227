// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/edge"
)

const c1VPN = "outbound|1194||vpn-seed-server.c1.svc.cluster.local"

// restarted are edges that follow each other with one configuration.
type restarted struct{ config, listen, health, records string }

func newRestarted(t *testing.T, dir string) *restarted {
	t.Helper()
	config, _ := edgeFiles(t, dir)
	r := &restarted{config: config, listen: runtest.Address(8132), records: filepath.Join(dir, "audit.jsonl")}
	text := string(readTestFile(t, config))
	for _, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "healthListen: "); ok {
			r.health = rest
		}
	}
	for path, text := range map[string]string{
		r.config: text + "- {name: vpn, listen: '" + r.listen + "', protocol: connect}\ndrainTimeout: 1h\n" +
			"limits: {perSource: 100000}\naudit: {path: " + r.records + ", maxSize: 64KiB, keep: 1000, compress: true}\n",
		filepath.Join(dir, "tenants", "c1.yaml"): "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: c1}\n" +
			"spec: {ways: [{flow: vpn, destinations: ['" + c1VPN + "'], upstreams: ['" + runtest.Echo(t).Addr() + "']}]}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "tenants", "c2.yaml")); err != nil {
		t.Fatal(err)
	}
	return r
}

// tunnel opens one that has carried a word.
func (r *restarted) tunnel() (net.Conn, error) {
	c, err := net.Dial("tcp", r.listen)
	if err != nil {
		return nil, err
	}
	const want = "HTTP/1.1 200 Connection Established\r\n\r\nhello"
	fmt.Fprintf(c, "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: %s\r\n\r\n", c1VPN)
	got := make([]byte, len(want))
	_, err = io.ReadFull(c, got[:len(want)-5])
	if err == nil {
		io.WriteString(c, "hello")
		_, err = io.ReadFull(c, got[len(want)-5:])
	}
	if err != nil || string(got) != want {
		c.Close()
		return nil, fmt.Errorf("%q, %w", got, err)
	}
	return c, nil
}

// recorded counts the tunnels in the records of so many edges.
func (r *restarted) recorded(t *testing.T, edges int) (n int64) {
	t.Helper()
	files, err := filepath.Glob(r.records + "*")
	if err != nil || len(files) < edges {
		t.Fatalf("%q, %v", files, err)
	}
	for _, f := range files {
		var in io.Reader = bytes.NewReader(readTestFile(t, f))
		if strings.HasSuffix(f, ".gz") {
			if in, err = gzip.NewReader(in); err != nil {
				t.Fatal(f, err)
			}
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Error(f, err)
		}
		n += int64(bytes.Count(data, []byte(`"code":"ok"`)))
	}
	return n
}

// TestEdgeRestart starts edges one after the other while clients connect all the time: none is refused, a tunnel
// lives on in the process that has it, and each tunnel has a record.
func TestEdgeRestart(t *testing.T) {
	const edges = 6
	dir := runtest.Dir(t)
	r := newRestarted(t, dir)
	start := func() *process {
		p := startProcess(t, "edge", "--config", r.config, "--take-over")
		p.Says(t, "edge is ready")
		return p
	}
	running := []*process{start()}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	var tunnels atomic.Int64
	for range 3 {
		clients.Go(func() {
			for ctx.Err() == nil {
				c, err := r.tunnel()
				if err != nil {
					t.Error(err)
					return
				}
				tunnels.Add(1)
				c.Close()
			}
		})
	}
	clients.Go(func() {
		for ctx.Err() == nil {
			c, err := net.Dial("tcp", r.health) // a probe that is being answered may be cut, and none is refused
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		}
	})
	var live []net.Conn
	for i := range edges {
		c, err := r.tunnel()
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, c)
		tunnels.Add(1)
		before := tunnels.Load()
		runtest.Eventually(t, "clients come", func() bool { return tunnels.Load() > before+20 || t.Failed() })
		if i < edges-1 {
			running = append(running, start())
			running[i].Says(t, "another edge has the ports now")
		}
	}
	stop()
	clients.Wait()
	res, err := http.Get("http://" + r.health + "/readyz")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%v, %+v", err, res)
	}
	res.Body.Close()
	if o := tombolo(t, "edge", "status", "--admin-socket", edge.AdminSocket(dir)); o.code != 0 || !strings.Contains(o.out, "vpn listens on "+r.listen) {
		t.Errorf("%+v", o)
	}
	for i, c := range live { // each in its own process
		if _, err := io.WriteString(c, "still"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-running[i].Done():
			t.Fatalf("edge %d has ended before its tunnel", i)
		default:
		}
		c.Close()
		if i < edges-1 {
			if code := running[i].Exit(t); code != 0 {
				t.Errorf("edge %d ended with %d", i, code)
			}
		}
	}
	if code := running[edges-1].End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("the last one ended with %d", code)
	}
	if n := r.recorded(t, edges); n != tunnels.Load() {
		t.Errorf("%d records of %d tunnels", n, tunnels.Load())
	}
}

// An edge that cannot come up leaves the one that runs as it was.
func TestEdgeRestartThatFails(t *testing.T) {
	dir := runtest.Dir(t)
	config, listen := edgeFiles(t, dir)
	p := startProcess(t, "edge", "--config", config, "--take-over")
	p.Says(t, "edge is ready")
	if o := tombolo(t, "edge", "--config", config); o.code == 0 || !strings.Contains(o.err, "address_in_use") ||
		!strings.Contains(o.err, "use --take-over") {
		t.Errorf("%+v", o)
	}
	bad := filepath.Join(dir, "bad.yaml")
	text := string(readTestFile(t, config)) + "policies: [" + dir + "/none.yaml]\n"
	if err := os.WriteFile(bad, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if o := tombolo(t, "edge", "--config", bad, "--take-over"); o.code == 0 {
		t.Errorf("%+v", o)
	}
	p.Says(t, "the edge that asked for the ports does not serve; this one goes on")
	c, err := net.Dial("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if o := tombolo(t, "edge", "status", "--admin-socket", edge.AdminSocket(dir)); o.code != 0 || strings.Contains(o.out, "draining") {
		t.Errorf("%+v", o)
	}
}

// An edge that takes over waits for the tenants that the API server has; the one that runs serves meanwhile.
func TestEdgeRestartWaitsForKubernetes(t *testing.T) {
	dir := runtest.Dir(t)
	api := kubetest.New(t)
	api.Put(kubetest.Tenants, "k1", `{"apiVersion":"tombolo.dev/v1alpha1","kind":"EdgeTenant","metadata":{"namespace":"ns",
		"name":"k1"},"spec":{"ways":[{"flow":"api","names":["k1.example.org"],"upstreams":["127.0.0.1:1"]}]}}`)
	config, listen := edgeFiles(t, dir)
	first := startProcess(t, "edge", "--config", config)
	first.Says(t, "edge is ready")
	access, next := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "next.yaml")
	for path, text := range map[string]string{
		access: string(api.Kubeconfig("edge")),
		next:   string(readTestFile(t, config)) + "kubernetes: {kubeconfig: " + access + "}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	api.Away(true)
	second := startProcess(t, "edge", "--config", next, "--take-over")
	second.Says(t, "Kubernetes cannot be read")
	if strings.Contains(second.Err.String(), "edge is ready") {
		t.Error("it does not wait")
	}
	c, err := net.Dial("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	api.Away(false)
	second.Says(t, `listen=[`+listen+`] tenants=2`) // a file and the object
	first.Says(t, "another edge has the ports now")
}
