// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/agent"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// TestMain gives a machine of one core a second thread: a session has no more
// connections than the hub has cores.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	goleak.VerifyTestMain(m)
}

// journal collects a log, one JSON object a line.
type journal struct {
	runtest.Transcript
	out *slog.Logger
}

// logger is as the program has it, with its bounds.
func (j *journal) logger() *slog.Logger {
	if j.out == nil {
		j.out, _ = telemetry.Logger(&j.Transcript, "json", "debug") // both of which there are
	}
	return j.out
}

// all gives the entries.
func (j *journal) all() (out []map[string]any) {
	for line := range strings.Lines(j.String()) {
		var rec map[string]any
		if json.Unmarshal([]byte(line), &rec) == nil {
			out = append(out, rec)
		}
	}
	return out
}

// records gives the entries with a message.
func (j *journal) records(message string) (out []map[string]any) {
	for _, rec := range j.all() {
		if rec["msg"] == message {
			out = append(out, rec)
		}
	}
	return out
}

// process is a hub or an agent that runs.
type process struct {
	soft, hard context.CancelFunc
	done       chan struct{}
	err        error // once done
}

func start(run func(soft, hard context.Context) error) *process {
	soft, cancelSoft := context.WithCancel(context.Background())
	hard, cancelHard := context.WithCancel(context.Background())
	p := &process{soft: cancelSoft, hard: cancelHard, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = run(soft, hard)
	}()
	return p
}

// stop ends the process without a drain and waits for it.
func (p *process) stop() error {
	p.soft()
	p.hard()
	<-p.done
	return p.err
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(runtest.Patience):
		t.Fatal("it did not end")
		return nil
	}
}

// hubSpec says what a hub shall be like; the zero value is a plain one.
type hubSpec struct {
	dir    string // state and sockets; made if empty
	listen string
	at     string           // where others reach it, if not at listen
	name   string           // in its certificate; that of the machine if empty
	extra  string           // more of the configuration, YAML
	now    func() time.Time // its clock
}

type testHub struct {
	*hub.Hub
	*process
	t        *testing.T
	dir      string
	listen   string
	adminURL string
	config   string // the YAML
	cfg      hub.Config
	log      *journal
	reg      *prometheus.Registry
	admin    *admin.Client
	records  *audit.Writer
	traces   *otlp.Tracer
}

func hubYAML(dir, listen, adminListen, extra string) string {
	return fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: HubConfig\nstateDir: %s/state\nrunDir: %s/run\nlisten: %s\nadvertise: [%q]\n%s\n",
		dir, dir, listen, listen, withAdmin(adminListen, extra))
}

// withAdmin adds the admin port, unless extra configures it.
func withAdmin(listen, extra string) string {
	if strings.Contains(extra, "admin:") {
		return strings.ReplaceAll(extra, "ADMIN", listen)
	}
	return fmt.Sprintf("admin: {listen: %q}\n%s", listen, extra)
}

// newHub makes a hub without running it.
func newHub(t *testing.T, s hubSpec) (*testHub, error) {
	t.Helper()
	if s.dir == "" {
		s.dir = runtest.Dir(t)
	}
	if s.listen == "" {
		s.listen = runtest.Address(8443)
	}
	adminListen := strings.TrimSuffix(s.listen, "8443") + "8444"
	h := &testHub{t: t, dir: s.dir, listen: s.listen, adminURL: "https://" + adminListen, log: &journal{}, reg: prometheus.NewRegistry()}
	h.config = hubYAML(s.dir, s.listen, adminListen, s.extra)
	if s.at != "" {
		h.config = strings.Replace(h.config, fmt.Sprintf("advertise: [%q]", s.listen), fmt.Sprintf("advertise: [%q]", s.at), 1)
	}
	cfg, err := hub.ParseConfig("hub.yaml", []byte(h.config))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Version = "test"
	if s.name != "" {
		cfg.Name = s.name
	}
	h.cfg = cfg
	log := h.log.logger()
	h.records, h.traces = observed(t, cfg.Audit, cfg.OTLP, otlp.Options{Log: log, Reg: h.reg, Service: "tombolo-hub"})
	h.Hub, err = hub.New(cfg, hub.Options{
		Log: log, Now: s.now, Reg: h.reg, Audit: h.records, Trace: h.traces,
		Extra: map[string]hub.Frontend{hub.ProtocolKonnectivity: konnectivity.New(log)},
	})
	h.admin = admin.OverSocket(hub.AdminSocket(cfg.RunDir))
	return h, err
}

// observed makes what takes the records and spans of a hub or an agent, as the program does.
func observed(t *testing.T, cfg audit.Config, out otlp.Config, o otlp.Options) (*audit.Writer, *otlp.Tracer) {
	t.Helper()
	logs, err := otlp.NewLogs(out, o)
	if err != nil {
		t.Fatal(err)
	}
	to := audit.Options{Log: o.Log, Reg: o.Reg}
	if logs != nil {
		to.Export = logs
	}
	records, err := audit.New(cfg, to)
	if err != nil {
		t.Fatal(err)
	}
	traces, err := otlp.NewTracer(out, o)
	if err != nil {
		t.Fatal(err)
	}
	return records, traces
}

func startHub(t *testing.T, s hubSpec) *testHub {
	t.Helper()
	h, err := newHub(t, s)
	if err != nil {
		t.Fatal(err)
	}
	h.process = start(func(soft, hard context.Context) error {
		return h.traces.While(soft, func() error { return h.records.While(soft, func() error { return h.Run(soft, hard) }) })
	})
	t.Cleanup(func() {
		if err := h.stop(); err != nil {
			t.Errorf("hub: %v", err)
		}
		h.handOver()
		if t.Failed() {
			t.Logf("hub's log:\n%s", tail(h.log.String()))
		}
	})
	select {
	case <-h.Ready():
	case <-h.done:
		t.Fatalf("the hub did not start: %v", h.err)
	}
	return h
}

func tail(s string) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}

// call asks the admin API and fails the test on an error.
func (h *testHub) call(method, path string, body, out any) {
	h.t.Helper()
	if err := h.admin.Call(runtest.Within(h.t), method, path, body, out); err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	if path != "/v1/tokens" { // whose answer to POST is the secret
		wroteAnswer(h.t, method+" "+path, out)
	}
}

// revoke revokes whose certificate has the serial number.
func (h *testHub) revoke(role, serial string) (out admin.Revocation) {
	h.t.Helper()
	h.call("POST", "/v1/revocations", admin.RevocationRequest{Role: role, Serial: serial}, &out)
	if out.Revoked.IsZero() {
		h.t.Errorf("the answer does not say so: %+v", out)
	}
	return out
}

func (h *testHub) token(cluster string) admin.Token { return h.tokenWith(cluster, 15*time.Minute, 1) }

func (h *testHub) tokenWith(cluster string, ttl time.Duration, uses int) (out admin.Token) {
	h.t.Helper()
	h.call("POST", "/v1/tokens", admin.TokenRequest{Cluster: cluster, TTLSeconds: int64(ttl / time.Second), Uses: uses}, &out)
	plantJoin(h.t, out.Join)
	return out
}

func (h *testHub) status(cluster string) (out admin.ClusterStatus) {
	h.t.Helper()
	var st admin.Status
	h.call("GET", "/v1/status?cluster="+cluster, nil, &st)
	return st.Clusters[0]
}

// connected counts the live sessions of a cluster.
func (h *testHub) connected(cluster string) (n int) {
	h.t.Helper()
	for _, a := range h.status(cluster).Agents {
		if a.Connected {
			n++
		}
	}
	return n
}

// agentSpec says what an agent shall be like.
type agentSpec struct {
	dir    string
	join   string
	allow  []string // default: all of loopback
	health string   // health port; one of its own if empty
	extra  string   // more of the configuration, YAML
	now    func() time.Time
}

type testAgent struct {
	*agent.Agent
	*process
	dir    string
	health string
	log    *journal
	reg    *prometheus.Registry
}

func agentConfig(t *testing.T, s agentSpec, health string) agent.Config {
	t.Helper()
	if s.allow == nil {
		s.allow = []string{"127.0.0.0/8"}
	}
	allow, err := json.Marshal(s.allow)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nstateDir: %s\nhealthListen: %q\nallow: %s\n%s\n", s.dir, health, allow, s.extra)
	cfg, err := agent.ParseConfig("agent.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Join, cfg.Version = s.join, "test"
	return cfg
}

// runAgent starts an agent and does not wait for its session.
func runAgent(t *testing.T, s agentSpec) *testAgent {
	t.Helper()
	if s.dir == "" {
		s.dir = filepath.Join(runtest.Dir(t), "agent")
	}
	if s.health == "" {
		s.health = runtest.Address(8445)
	}
	a := &testAgent{dir: s.dir, health: s.health, log: &journal{}, reg: prometheus.NewRegistry()}
	cfg := agentConfig(t, s, a.health)
	records, traces := observed(t, cfg.Audit, cfg.OTLP, otlp.Options{Log: a.log.logger(), Reg: a.reg, Service: "tombolo-agent"})
	a.Agent = agent.New(cfg, agent.Options{Log: a.log.logger(), Now: s.now, Reg: a.reg, Audit: records, Trace: traces})
	a.process = start(func(soft, hard context.Context) error {
		return traces.While(soft, func() error { return records.While(soft, func() error { return a.Run(soft, hard) }) })
	})
	t.Cleanup(func() {
		a.stop()
		handOver(t, "agent", a.log, a.reg, cfg.Audit.Path)
		plantAgent(t, a.dir)
		if t.Failed() {
			t.Logf("agent's log:\n%s", tail(a.log.String()))
		}
	})
	return a
}

// startAgent starts an agent and waits for its session.
func startAgent(t *testing.T, s agentSpec) *testAgent {
	t.Helper()
	a := runAgent(t, s)
	runtest.Eventually(t, "the agent holds a session", func() bool {
		select {
		case <-a.done:
			t.Fatalf("the agent ended: %v", a.err)
		default:
		}
		return a.Ready()
	})
	return a
}

// pair is a hub with one agent of cluster c1.
func pair(t *testing.T, hs hubSpec, as agentSpec) (*testHub, *testAgent) {
	t.Helper()
	h := startHub(t, hs)
	as.join = h.token("c1").Join
	return h, startAgent(t, as)
}

// wantFault fails unless err carries the code.
func wantFault(t *testing.T, err error, code fault.Code) *fault.Fault {
	t.Helper()
	if !fault.Has(err, code) {
		t.Fatalf("got %v, want code %s", err, code)
	}
	f := fault.From(err)
	if f.What == "" {
		t.Errorf("%s says nothing: %#v", code, f)
	}
	return f
}

// closing closes what a test opened, at its end.
func closing(t *testing.T, c net.Conn) net.Conn {
	t.Cleanup(func() { c.Close() })
	return c
}
