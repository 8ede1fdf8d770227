// SPDX-License-Identifier: Apache-2.0

//go:build lab

package product

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// copied is what is copied out of a cluster, in MiB: 500 MB. copyWithin bounds it: other tests have the processors too.
const (
	copied     = 477
	copyWithin = 3 * time.Minute
)

// TestRouteForPeople: Prometheus scrapes both clusters, whose ranges are equal, by plain addresses; curl, dig and ping
// are what they are everywhere, and a copy of 500 MB arrives whole.
func TestRouteForPeople(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t)
	for i, site := range r.world.Sites {
		r.exports(site.Backend, lab.BackendAddr+":7080", clusterOf(i))
	}
	r.startRoute()
	config := filepath.Join(r.dir, "prometheus.yaml")
	if err := os.WriteFile(config, []byte(`global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: pods
  static_configs: [{targets: ["`+lab.BackendAddr+`:7080", "240.2.0.80:7080"]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	prometheus := &role{host: r.host, log: filepath.Join(r.dir, "prometheus.log")}
	prometheus.process = labtest.Start(t, r.host, prometheus.log, nil, "prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(r.dir, "tsdb"), "--web.listen-address=127.0.0.1:9090")
	run := func(words ...string) (string, error) {
		return labtest.Run(r.host, copyWithin, nil, words[0], words[1:]...)
	}
	r.eventually("Prometheus has scraped both clusters", reconnectWithin, prometheus, func() error {
		out, err := run("curl", "-sS", "--max-time", "5", "http://127.0.0.1:9090/api/v1/query?query=where_is_this")
		for i := range r.world.Sites {
			if err == nil && !strings.Contains(out, `"cluster":"`+clusterOf(i)+`"`) {
				err = fmt.Errorf("%s is missing in %s", clusterOf(i), out)
			}
		}
		return err
	})
	for _, one := range []struct{ line, want string }{
		{"curl -sS --max-time 5 http://240.2.0.80:7080/metrics", `where_is_this{cluster="c2"} 1`},
		{"dig +short +time=5 @192.0.0.53 web.default.svc.cluster.local", lab.BackendAddr},
		{"dig +short +tcp +time=5 @192.0.0.53 web.default.svc.c2.internal", "240.2.0.80"},
		{"ping -c 1 -W 5 240.2.0.80", "1 received"},
		{"curl -sS http://240.2.0.80:7080/copy | sha256sum", copySum()},
	} {
		if out, err := run("bash", "-o", "pipefail", "-c", one.line); err != nil || !strings.Contains(out, one.want) {
			t.Errorf("%s: %v\n%s, want %s", one.line, err, out, one.want)
		}
	}
}

// copyTo writes what is copied: no block is equal to another.
func copyTo(w io.Writer) {
	block := make([]byte, 1<<20)
	for i := range uint64(copied) {
		for at := 0; at < len(block); at += 4096 {
			binary.BigEndian.PutUint64(block[at:], i<<32|uint64(at))
		}
		if _, err := w.Write(block); err != nil {
			return // the test sees the sum
		}
	}
}

func copySum() string {
	h := sha256.New()
	copyTo(h)
	return hex.EncodeToString(h.Sum(nil))
}

// exports serves a metric that names its cluster, and a copy.
func (r *rig) exports(h *lab.Host, addr, cluster string) {
	r.t.Helper()
	ln, err := h.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "where_is_this{cluster=%q} 1\n", cluster)
	})
	mux.HandleFunc("/copy", func(w http.ResponseWriter, _ *http.Request) { copyTo(w) })
	srv := &http.Server{Handler: mux}
	go func(ln net.Listener) { _ = srv.Serve(ln) }(ln)
	r.t.Cleanup(func() { srv.Close() })
}
