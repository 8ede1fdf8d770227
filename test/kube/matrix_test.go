// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/kube/rig"
	"github.com/tombolo-io/tombolo/test/lab"
)

// matrix is everything that a kube-apiserver does towards its cluster, in one mode.
func (x *cluster) matrix(t *testing.T, mode rig.Mode) {
	x.useEgress(t, mode)
	x.cases(t, mode)
}

// cases are those of the matrix, where kube-apiserver has done nothing but this mode since its start.
func (x *cluster) cases(t *testing.T, mode rig.Mode) {
	dropped := x.drops(t)
	tag := string(mode)
	t.Run("logs", x.logs)
	t.Run("logs -f", x.logsFollow)
	if mode == rig.VPN { // once: kubelet begins a new file after 10 MB, and logs come from the newest one only
		t.Run("many logs", func(t *testing.T) { x.manyLogs(t, tag) })
	}
	t.Run("exec", x.exec)
	t.Run("attach", func(t *testing.T) { x.attach(t, tag) })
	t.Run("cp", x.cp)
	t.Run("port-forward", x.portForward)
	t.Run("proxy", func(t *testing.T) { x.proxy(t, tag) })
	t.Run("webhook", func(t *testing.T) { x.webhook(t, tag) })
	t.Run("aggregated API", x.aggregatedAPI)
	x.dialledBy(t, mode)
	if now := x.drops(t); now != dropped {
		t.Errorf("something dialled the node directly: the firewall dropped %d packets; since the start of all these: %s",
			now-dropped, x.FirewallDropped(x.ctx))
	}
}

// dialledBy makes sure that the tests above went the way that their name says: kube-apiserver counts its dials.
func (x *cluster) dialledBy(t *testing.T, mode rig.Mode) {
	want := map[rig.Mode]string{
		rig.GRPCUDS:    `{protocol="grpc",transport="uds"}`,
		rig.ConnectUDS: `{protocol="http_connect",transport="uds"}`,
		rig.ConnectTLS: `{protocol="http_connect",transport="tcp"}`,
		rig.VPN:        `{protocol="http_connect",transport="tcp"}`,

		rig.KonnectivityGRPC:    `{protocol="grpc",transport="uds"}`,
		rig.KonnectivityConnect: `{protocol="http_connect",transport="uds"}`,
	}[mode]
	metrics, err := x.Get(x.within(t, time.Minute), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var counts []string
	for line := range strings.Lines(metrics) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "apiserver_egress_dialer_dial_start_total"); ok {
			counts = append(counts, text)
		}
	}
	if len(counts) != 1 || !strings.HasPrefix(counts[0], want+" ") {
		t.Errorf("kube-apiserver counts its dials as %q, want all of them as %s", counts, want)
	}
}

func (x *cluster) logs(t *testing.T) {
	out, err := x.Kubectl(x.within(t, time.Minute), "logs", "writer", "--tail=3")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^(line \d+\n){3}$`).MatchString(out) {
		t.Errorf("logs --tail=3 printed %q", out)
	}
}

// manyLogs has a pod write 100,000 lines at once, and wants all of them.
func (x *cluster) manyLogs(t *testing.T, word string) {
	const most = 100_000
	write := fmt.Sprintf("seq %d | sed 's/^/many-%s-/' > /proc/1/fd/1", most, word)
	if _, err := x.Kubectl(x.within(t, time.Minute), "exec", "shell", "--", "sh", "-c", write); err != nil {
		t.Fatal(err)
	}
	got := 0
	for tries := 0; got < most && tries < 30; tries++ { // containerd writes them meanwhile
		out, err := x.Kubectl(x.within(t, time.Minute), "logs", "shell", fmt.Sprintf("--tail=%d", most))
		if err != nil {
			t.Fatal(err)
		}
		got = 0
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "many-"+word+"-") {
				got++
			}
		}
	}
	if got != most {
		t.Errorf("%d lines came of %d", got, most)
	}
}

// endpoints waits until the Service of the workload has its pod: while the controllers wait to ask a kube-apiserver
// that was restarted, they may take the node for dead, and its pods out of Services.
func (x *cluster) endpoints(t *testing.T) {
	t.Helper()
	ctx := x.within(t, 2*time.Minute)
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := x.Kubectl(ctx, "get", "endpointslices", "-l", "kubernetes.io/service-name=backend", "-o",
			"jsonpath={.items[*].endpoints[*].conditions.ready}")
		if err == nil && strings.Contains(out, "true") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the Service of the workload has no pod: %q, %v", out, err)
		}
	}
}

// logsFollow reads lines as the pod writes them: numbered, so that a lost or doubled one shows.
func (x *cluster) logsFollow(t *testing.T) {
	out := newLines()
	session, err := x.StartKubectl(x.within(t, time.Minute), nil, out, "logs", "-f", "writer", "--tail=1")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Stop(0)
	last := 0
	for range 30 {
		n := out.number(t, session)
		if last != 0 && n != last+1 {
			t.Fatalf("line %d follows line %d", n, last)
		}
		last = n
	}
}

func (x *cluster) exec(t *testing.T) {
	in, sum := noise(t, 4<<20)
	out, err := x.KubectlInput(x.within(t, time.Minute), bytes.NewReader(in), "exec", "-i", "shell", "--", "sha256sum")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := strings.Cut(out, " "); got != sum {
		t.Errorf("the pod read other bytes than were sent: sha256 %s, want %s", got, sum)
	}
	if _, err := x.Kubectl(x.within(t, time.Minute), "exec", "shell", "--", "sh", "-c", "exit 7"); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("exec of a command that exits with 7: %v", err)
	}
}

func (x *cluster) attach(t *testing.T, word string) {
	read, write := io.Pipe()
	out := newLines()
	session, err := x.StartKubectl(x.within(t, time.Minute), read, out, "attach", "-i", "shell")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Stop(0)
	defer write.Close() // before Stop, which waits for kubectl's input to end
	if _, err := fmt.Fprintf(write, "attached by %s\n", word); err != nil {
		t.Fatal(err)
	}
	for line := out.next(t, session); line != "attached by "+word; line = out.next(t, session) {
		t.Logf("kubectl: %s", line) // it greets with "If you don't see a command prompt..."
	}
}

// cp moves 100 MB into a pod and back.
func (x *cluster) cp(t *testing.T) {
	dir := t.TempDir()
	data, sum := noise(t, 100_000_000)
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	if err := os.WriteFile(there, data, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if out, err := x.Kubectl(x.within(t, 2*time.Minute), "cp", there, "shell:/tmp/big"); err != nil {
		t.Fatal(err, out)
	}
	t.Logf("100 MB into the pod in %.1fs", time.Since(begin).Seconds())
	out, err := x.Kubectl(x.within(t, time.Minute), "exec", "shell", "--", "sha256sum", "/tmp/big")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := strings.Cut(out, " "); got != sum {
		t.Errorf("sha256 in the pod is %s, want %s", got, sum)
	}
	begin = time.Now()
	if out, err := x.Kubectl(x.within(t, 2*time.Minute), "cp", "shell:/tmp/big", back); err != nil {
		t.Fatal(err, out)
	}
	t.Logf("100 MB out of the pod in %.1fs", time.Since(begin).Seconds())
	got, err := os.ReadFile(back)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Errorf("what came back differs: %d bytes, want %d", len(got), len(data))
	}
}

// portForward sends 50 requests at once through one port-forward.
func (x *cluster) portForward(t *testing.T) {
	ctx := x.within(t, 90*time.Second)
	out := newLines()
	session, err := x.StartKubectl(ctx, nil, out, "port-forward", "pod/backend", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Stop(0)
	var match []string
	for match == nil {
		match = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`).FindStringSubmatch(out.next(t, session))
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) { return x.Dial(ctx, address) }}}
	body, _ := noise(t, 64<<10)
	failed := make(chan error, 50)
	for i := range cap(failed) {
		go func() { failed <- post(ctx, client, fmt.Sprintf("http://%s/echo?word=%d", match[1], i), x.Name, body) }()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// post sends a body to the echo and compares the answer.
func post(ctx context.Context, client *http.Client, url, cluster string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	_, word, _ := strings.Cut(url, "word=")
	if want := fmt.Appendf(nil, "%s echoes %s\n%s", cluster, word, body); !bytes.Equal(got, want) {
		return fmt.Errorf("%s answered with %d bytes that are not what was sent: %.60q", url, len(got), got)
	}
	return nil
}

// proxy asks through kube-apiserver's proxy subresources.
func (x *cluster) proxy(t *testing.T, word string) {
	x.endpoints(t)
	echo := fmt.Sprintf("%s echoes %s\n", x.Name, word)
	for path, want := range map[string]string{
		"/api/v1/namespaces/default/pods/backend:8080/proxy/echo?word=" + word:            echo,
		"/api/v1/namespaces/default/pods/https:backend:8443/proxy/echo?word=" + word:      echo,
		"/api/v1/namespaces/default/services/backend:http/proxy/echo?word=" + word:        echo,
		"/api/v1/namespaces/default/services/https:backend:https/proxy/echo?word=" + word: echo,
		"/api/v1/nodes/node1/proxy/healthz":                                               "ok",
	} {
		if got, err := x.Kubectl(x.within(t, time.Minute), "get", "--raw", path); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}

// webhook lets a pod behind a service decide about objects.
func (x *cluster) webhook(t *testing.T, name string) {
	x.endpoints(t)
	manifest := func(verdict string) io.Reader {
		return strings.NewReader(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s-%s, labels: {webhook: 'yes', verdict: %s}}}",
			name, verdict, verdict))
	}
	if _, err := x.KubectlInput(x.within(t, time.Minute), manifest("allow"), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	seen, err := x.Kubectl(x.within(t, time.Minute), "get", "configmap", name+"-allow", "-o", "jsonpath={.metadata.labels.seen}")
	if err != nil || seen != "yes" {
		t.Errorf("the webhook's label is %q (%v), want yes", seen, err)
	}
	_, err = x.KubectlInput(x.within(t, time.Minute), manifest("deny"), "create", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "denied by the webhook in the pod") {
		t.Errorf("an object that the webhook denies: %v", err)
	}
}

// aggregatedAPI asks an API server that runs in the cluster. kube-apiserver looks for it in its own time
// after it has started, so the first answer is waited for.
func (x *cluster) aggregatedAPI(t *testing.T) {
	x.endpoints(t)
	ctx := x.within(t, 2*time.Minute)
	want := `"user":"admin"`
	for {
		out, err := x.Kubectl(ctx, "get", "--raw", "/apis/rig.tombolo.test/v1/callers/me")
		if err == nil {
			if !strings.Contains(out, want) {
				t.Errorf("the aggregated API server answered %q, want %s in it", out, want)
			}
			break
		}
		select {
		case <-ctx.Done():
			status, _ := x.Kubectl(x.within(t, 10*time.Second), "get", "apiservice", "v1.rig.tombolo.test", "-o", "jsonpath={.status}")
			t.Fatalf("%v\nAPIService status: %s", err, status)
		case <-time.After(300 * time.Millisecond):
		}
	}
	// What kube-apiserver tells of its kinds is read from there later still, and a minute later where that failed the first
	// time; kubectl asks for it first.
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := x.Kubectl(ctx, "get", "callers.rig.tombolo.test", "me", "-o", "name")
		if err == nil && out == "caller.rig.tombolo.test/me\n" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("get callers me: %q, %v", out, err)
		case <-tick.C:
		}
	}
}

// noise is random data with its checksum: nothing on the way can compress or guess it.
func noise(t *testing.T, size int) (data []byte, sum string) {
	t.Helper()
	data = make([]byte, size)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(data)
	return data, hex.EncodeToString(digest[:])
}

// lines hands out what a program prints, line by line. It never blocks the program: what nobody reads waits.
type lines struct {
	rest []byte
	full chan string
}

func newLines() *lines { return &lines{full: make(chan string, 100_000)} }

// Write takes output; os/exec calls it from one goroutine, because stdout and stderr are the same writer.
func (l *lines) Write(data []byte) (int, error) {
	l.rest = append(l.rest, data...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(data), nil
		}
		l.full <- string(line)
		l.rest = rest
	}
}

// next waits for a line.
func (l *lines) next(t *testing.T, s *lab.Process) string {
	t.Helper()
	select {
	case line := <-l.full:
		return line
	case <-s.Done():
		select {
		case line := <-l.full:
			return line
		default:
			t.Fatalf("kubectl ended: %v", s.Wait())
		}
	case <-time.After(time.Minute):
		t.Fatal("no further line within a minute")
	}
	return ""
}

// number waits for "line N" and returns N.
func (l *lines) number(t *testing.T, s *lab.Process) int {
	t.Helper()
	line := l.next(t, s)
	n, err := strconv.Atoi(strings.TrimPrefix(line, "line "))
	if err != nil {
		t.Fatalf("the pod's log has a line that it did not write: %q", line)
	}
	return n
}
