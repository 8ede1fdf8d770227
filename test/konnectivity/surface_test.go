// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/agent"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/server"
)

// ask runs the reference with these arguments and gives its output.
func ask(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(program(t), args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ourFlags(kind string) (*pflag.FlagSet, []string) {
	fl := pflag.NewFlagSet(kind, pflag.ContinueOnError)
	none := func(string) string { return "" }
	if kind == "server" {
		new(server.Options).Flags(fl, none)
		return fl, server.Meaningless()
	}
	new(agent.Options).Flags(fl, none)
	return fl, agent.Meaningless()
}

// TestFlags goes over all flags that the reference has: each is ours, of the same type and default, and takes an empty
// value where the reference's does.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"server", "agent"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var rows []struct{ Name, Shorthand, Type, Default, NoOptDefault, Deprecated string }
			if err := json.Unmarshal(ask(t, "flags", kind), &rows); err != nil {
				t.Fatal(err)
			}
			if len(rows) < 40 {
				t.Fatalf("the reference has %d flags", len(rows))
			}
			fl, meaningless := ourFlags(kind)
			for _, r := range rows {
				f := fl.Lookup(r.Name)
				if f == nil {
					t.Errorf("--%s is not taken", r.Name)
					continue
				}
				if f.Value.Type() != r.Type || f.NoOptDefVal != r.NoOptDefault || f.Shorthand != r.Shorthand {
					t.Errorf("--%s is %s %q -%s here, and %s %q -%s there", r.Name, f.Value.Type(), f.NoOptDefVal, f.Shorthand, r.Type,
						r.NoOptDefault, r.Shorthand)
				}
				if !strings.HasSuffix(r.Name, "-id") && f.DefValue != r.Default { // ids are random
					t.Errorf("--%s is %q by default, and %q there", r.Name, f.DefValue, r.Default)
				}
				if r.Type == "string" || r.Type == "stringSlice" {
					if err := fl.Parse([]string{"--" + r.Name + "="}); err != nil {
						t.Errorf("--%s= is not taken: %v", r.Name, err)
					}
				}
			}
			theirs := map[string]bool{}
			for _, r := range rows {
				theirs[r.Name] = true
			}
			fl.VisitAll(func(f *pflag.Flag) {
				if !theirs[f.Name] && !strings.HasSuffix(f.Usage, "; not of the reference") {
					t.Errorf("--%s is not of the reference, and does not say so", f.Name)
				}
			})
			for _, name := range meaningless {
				if fl.Lookup(name) == nil {
					t.Errorf("--%s means nothing, and is no flag", name)
				}
			}
		})
	}
}

// families reads the metrics of konnectivity.
func families(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		if !strings.HasPrefix(name, "konnectivity_network_proxy_") {
			delete(all, name)
		}
	}
	return all
}

func labels(f *dto.MetricFamily) (out []string) {
	for _, l := range f.Metric[0].Label {
		out = append(out, l.GetName())
	}
	return out
}

// TestMetrics compares the metrics of programs that have just started with those that the reference has.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("grpc", false)
	a := ourAgent(w, w.ports(1)[0])
	for kind, port := range map[string]int{"server": p.healthPort, "agent": a.health} {
		var body string
		eventually(t, "metrics", func() bool { _, body = get(port, "/metrics"); return body != "" })
		ours, theirs := families(t, body), families(t, string(ask(t, "metrics", kind)))
		for name, f := range theirs {
			if !strings.HasPrefix(name, "konnectivity_network_proxy_"+kind+"_") {
				continue // the reference's server links the agent, and has a gauge of it
			}
			o := ours[name]
			if o == nil {
				t.Errorf("%s: there is no %s from the start", kind, name)
				continue
			}
			if o.GetType() != f.GetType() || o.GetHelp() != f.GetHelp() {
				t.Errorf("%s is %v %q here, and %v %q there", name, o.GetType(), o.GetHelp(), f.GetType(), f.GetHelp())
			}
			if got, want := strings.Join(labels(o), " "), strings.Join(labels(f), " "); got != want {
				t.Errorf("%s has the labels %q here, and %q there", name, got, want)
			}
			if h, other := o.Metric[0].Histogram, f.Metric[0].Histogram; h != nil && len(h.Bucket) != len(other.Bucket) {
				t.Errorf("%s has %d buckets here, and %d there", name, len(h.Bucket), len(other.Bucket))
			}
		}
		for name := range ours {
			if theirs[name] == nil && !strings.HasSuffix(name, "_lease_watches_total") { // the reference never moves it
				t.Errorf("%s: %s is no metric of the reference", kind, name)
			}
		}
		fromZero(t, kind, ours)
	}
}

// fromZero wants a series for each value that a label of the reference can have, and that nothing is counted yet.
func fromZero(t *testing.T, kind string, ours map[string]*dto.MetricFamily) {
	t.Helper()
	prefix := "konnectivity_network_proxy_" + kind + "_"
	there := map[string]bool{}
	for name, f := range ours {
		for _, m := range f.Metric {
			one := strings.TrimPrefix(name, prefix)
			for _, l := range m.Label {
				one += " " + l.GetValue()
			}
			there[one] = true
			n := m.Counter.GetValue() + m.Gauge.GetValue() + float64(m.Histogram.GetSampleCount())
			if n != 0 && one != "known_server_count" { // an agent wants one, as soon as it looks
				t.Errorf("%s: %s is %v at the start", kind, one, n)
			}
		}
	}
	for _, one := range series(kind) {
		if !there[one] {
			t.Errorf("%s: there is no %s from the start", kind, one)
		}
	}
}

// series are those of the reference with labels, with the values of the labels in the order of their names.
func series(kind string) (out []string) {
	add := func(name string, values ...string) {
		for _, v := range values {
			out = append(out, name+" "+v)
		}
	}
	for _, segment := range []string{"from_client", "to_client", "from_agent", "to_agent"} {
		for _, packet := range []string{"DIAL_REQ", "DIAL_RSP", "CLOSE_REQ", "CLOSE_RSP", "DATA", "DIAL_CLS", "DRAIN"} {
			add("stream_packets_total", packet+" "+segment)
		}
		add("stream_errors_total", "Unavailable Unknown "+segment) // other codes come with their errors
	}
	if kind == "agent" {
		add("server_connection_failure_count", "from_server", "to_server")
		add("endpoint_dial_failure_total", "timeout", "unknown")
		add("lease_lists_total", "200 ")
		add("lease_watches_total", "200 ")
		add("lease_list_latency_seconds", "200")
		return out
	}
	add("grpc_connections", "Proxy", "Connect")
	add("full_receive_channels", "Proxy", "Connect")
	add("ready_backends", "default")
	add("dial_failure_count", "no_agent", "error_response", "unrecognized_response", "send_rsp", "backend_close",
		"backend_dial_timeout", "frontend_close")
	add("lease_delete_total", "200 ")
	add("lease_delete_latency_seconds", "200")
	add("lease_list_total", "200 ")
	add("lease_list_latency_seconds", "200")
	return out
}

// TestEndpoints asks the ports as probes do.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("grpc", false, "--enable-profiling")
	want := func(port int, path string, status int, text string) {
		t.Helper()
		got, body := get(port, path)
		if got != status || !strings.Contains(body, text) {
			t.Errorf("%s: %d %.200q, and not %d with %q", path, got, body, status, text)
		}
	}
	want(p.healthPort, "/healthz", 200, "ok")
	for _, path := range []string{"/readyz", "/ready"} {
		want(p.healthPort, path, 500, "no connection to any proxy agent")
	}
	want(p.admin, "/metrics", 200, "konnectivity_network_proxy_server_")
	want(p.admin, "/debug/pprof/", 200, "goroutine")
	a := ourAgent(w, p.agentPort)
	a.ready()
	p.ready()
	want(p.healthPort, "/readyz?verbose", 200, "agents by default: 1")
	want(a.health, "/healthz", 200, "ok")
	want(a.health, "/readyz?verbose", 200, "servers: 1 of 1")
	want(a.health, "/readyz", 200, "ok")
	want(a.health, "/ready", 200, "ok")
	want(p.healthPort, "/ready", 200, "ok")
	want(a.admin, "/metrics", 301, "")
	want(a.admin, "/debug/pprof/", 404, "")
	profiled := ourAgent(w, p.agentPort, "--enable-profiling")
	profiled.ready()
	want(profiled.admin, "/debug/pprof/", 200, "goroutine")
	want(profiled.health, "/debug/pprof/", 404, "")
	want(w.ours("grpc", false).admin, "/debug/pprof/", 404, "")
	p.soft()
	eventually(t, "the agent is not ready", func() bool { status, _ := get(a.health, "/readyz"); return status == 503 })
	for _, path := range []string{"/readyz", "/ready"} {
		want(a.health, path, 503, "[-]server-connected failed: connected to 0 of 1 servers")
	}
}
