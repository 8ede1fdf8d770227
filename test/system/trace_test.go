// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/otlp/otlptest"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// secretOfTests is what a careless caller puts into its metadata.
const secretOfTests = "planted-3k9x-metadata-7w2m"

const parentOfTests = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// withMetadata are the ways in which a caller sends metadata with its dial.
func (h *testHub) withMetadata(cluster string) map[string]func(ctx context.Context, target string, lines ...string) (net.Conn, error) {
	unix := h.socket(cluster, hub.ProtocolConnect)
	cert := h.issue(admin.CertificateRequest{Role: "client", Cluster: cluster, Name: "tool"})
	return map[string]func(context.Context, string, ...string) (net.Conn, error){
		"connect": func(ctx context.Context, target string, lines ...string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", unix)
			if err != nil {
				return nil, err
			}
			return ask(ctx, closing(h.t, conn), "CONNECT "+target+" HTTP/1.1\r\nHost: x\r\n"+strings.Join(lines, "\r\n")+"\r\n\r\n")
		},
		"connect-tls": func(ctx context.Context, target string, lines ...string) (net.Conn, error) {
			conn, err := (&tls.Dialer{Config: cert.clientTLS(h.listen)}).DialContext(ctx, "tcp", h.listen)
			if err != nil {
				return nil, err
			}
			return ask(ctx, closing(h.t, conn), "CONNECT "+target+" HTTP/1.1\r\nHost: x\r\n"+strings.Join(lines, "\r\n")+"\r\n\r\n")
		},
		"admin": func(ctx context.Context, target string, lines ...string) (net.Conn, error) {
			header := map[string][]string{}
			for _, l := range lines {
				name, value, _ := strings.Cut(l, ": ")
				header[name] = append(header[name], value)
			}
			said, err := reqmeta.Read(header)
			if err != nil {
				return nil, fault.New(fault.CodeRequest, "refused here").Because(err)
			}
			return h.admin.StreamWith(ctx, cluster, target, said)
		},
	}
}

// TestWhatACallerSaysIsRecordedAtBothEnds sends metadata and a trace context over
// each frontend that takes them.
func TestWhatACallerSaysIsRecordedAtBothEnds(t *testing.T) {
	plant(t, "a secret in metadata", secretOfTests)
	dir := runtest.Dir(t)
	hubFile, agentFile := filepath.Join(dir, "hub.jsonl"), filepath.Join(dir, "agent.jsonl")
	h, _ := pair(t, hubSpec{extra: fmt.Sprintf("audit: {path: %q}\n", hubFile)}, agentSpec{extra: fmt.Sprintf("audit: {path: %q}\n", agentFile)})
	for name, dial := range h.withMetadata("c1") {
		t.Run(name, func(t *testing.T) {
			target := runtest.Echo(t)
			conn, err := dial(runtest.Within(t), target.Addr(), "Tombolo-Metadata: ticket=OPS-1", "Tombolo-Metadata: who=J%C3%B6rg",
				"Tombolo-Metadata: api-token="+secretOfTests, "Traceparent: "+parentOfTests, "Tracestate: a=1")
			if err != nil {
				t.Fatal(err)
			}
			mustEcho(t, conn, "x")
			conn.Close()
			for at, file := range map[string]string{"hub": hubFile, "agent": agentFile} {
				var got []audit.Record
				runtest.Eventually(t, "the record is there", func() bool {
					got = nil
					for _, r := range audited(t, file, audit.Filter{}) {
						if r.Asked == target.Addr() {
							got = append(got, r)
						}
					}
					return len(got) == 1
				})
				r := got[0]
				if r.Traceparent != parentOfTests || r.Metadata.Get("ticket") != "OPS-1" || r.Metadata.Get("who") != "Jörg" || r.Metadata.Get("api-token") != audit.Redacted {
					t.Errorf("%s: %+v", at, r)
				}
			}
			// A malformed trace context is ignored, malformed metadata refused.
			conn, err = dial(runtest.Within(t), target.Addr(), "Traceparent: nonsense", "Tracestate: a=1")
			if err != nil {
				t.Fatalf("a malformed traceparent: %v", err)
			}
			conn.Close()
			if name == "admin" {
				return // its client refuses
			}
			_, err = dial(runtest.Within(t), target.Addr(), "Tombolo-Metadata: ticket=a%0Ab")
			wantRefused(t, err, 400, fault.CodeRequest)
		})
	}
}

// TestMetadataIsNoIdentity says who one would like to be, in every place where it can be said.
func TestMetadataIsNoIdentity(t *testing.T) {
	target := runtest.Echo(t)
	f := policyFolder(t)
	f.put("p.yaml", fmt.Sprintf("- {name: ops, callers: [operator], allow: [%q]}\n", target.Addr()))
	h, _ := pair(t, hubSpec{extra: f.extra()}, agentSpec{})
	for name, dial := range h.withMetadata("c1") {
		_, err := dial(runtest.Within(t), target.Addr(), "Tombolo-Metadata: caller=operator", "Tombolo-Metadata: egress=cluster", "Tombolo-Metadata: cluster=c2")
		if name == "admin" {
			if err != nil {
				t.Errorf("the operator: %v", err)
			}
			continue
		}
		wantRefused(t, err, 403, fault.CodePolicyDenied)
	}
}

// TestADialIsTracedFromCallerToTarget follows one dial through hub and agent.
func TestADialIsTracedFromCallerToTarget(t *testing.T) {
	collector := otlptest.New(t)
	dir := runtest.Dir(t)
	hubFile := filepath.Join(dir, "hub.jsonl")
	headers := filepath.Join(dir, "headers")
	plant(t, "a header for the collector", "planted-8c4t-collector-5h6j")
	if err := os.WriteFile(headers, []byte("Authorization: Bearer planted-8c4t-collector-5h6j\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	to := fmt.Sprintf("endpoint: %q, caFile: %q, headersFile: %q", collector.URL, collector.CAFile, headers)
	tracing := "tracing: {" + to + "}\n"
	h, _ := pair(t, hubSpec{extra: tracing + fmt.Sprintf("audit: {path: %q, otlp: {%s}}\n", hubFile, to)}, agentSpec{extra: tracing})
	target := runtest.Echo(t)
	conn, err := h.withMetadata("c1")["connect"](runtest.Within(t), target.Addr(), "Traceparent: "+parentOfTests)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	_, port, _ := net.SplitHostPort(target.Addr())
	target.Stop()
	if _, err := h.withMetadata("c1")["connect"](runtest.Within(t), "127.0.0.1:"+port, "Tracestate: a=1"); err == nil {
		t.Fatal("nobody listens there")
	}
	spans, decides := map[string]*tracepb.Span{}, map[string]bool{}
	runtest.Eventually(t, "the spans have arrived", func() bool {
		for _, s := range collector.Spans() {
			if hex.EncodeToString(s.TraceId) == reqmeta.TraceID(parentOfTests) {
				spans[attribute(s, "tombolo.at")+s.Name] = s
				if s.Name == "decide" {
					decides[string(s.ParentSpanId)] = true
				}
			}
		}
		return len(spans) == 6 && len(collector.Spans()) >= 14
	})
	for child, parent := range map[string]string{
		"pick": "hubdial", "ask": "hubdial", "agentdial": "ask", "connect": "agentdial",
	} {
		if spans[child] == nil || spans[parent] == nil || string(spans[child].ParentSpanId) != string(spans[parent].SpanId) {
			t.Errorf("%s is no part of %s: %v", child, parent, spans)
		}
	}
	if len(decides) != 2 || !decides[string(spans["hubdial"].SpanId)] || !decides[string(spans["agentdial"].SpanId)] {
		t.Errorf("hub and agent decide each: %v", decides)
	}
	if hex.EncodeToString(spans["hubdial"].ParentSpanId) != parentOfTests[36:52] {
		t.Errorf("the hub's span is no part of the caller's: %v", spans["hubdial"])
	}
	if a := spans["hubdial"]; attribute(a, "tombolo.cluster") != "c1" || attribute(a, "tombolo.asked") != target.Addr() {
		t.Errorf("%v", a)
	}
	failed := map[string]bool{}
	for _, s := range collector.Spans() {
		if attribute(s, "tombolo.code") == string(fault.CodeDialRefused) {
			failed[attribute(s, "tombolo.at")+s.Name] = true
		}
	}
	if !failed["hubdial"] || !failed["agentdial"] || !failed["connect"] || !failed["ask"] || failed["decide"] {
		t.Errorf("of the refused dial: %v", failed)
	}
	for _, head := range collector.Headers() {
		if head.Get("Authorization") != "Bearer planted-8c4t-collector-5h6j" {
			t.Errorf("a request without its header: %v", head)
		}
	}
	runtest.Eventually(t, "the record is a log record too", func() bool { return len(collector.Logs()) >= 2 })
	wrote(t, "what a collector got", fmt.Sprint(collector.Spans(), collector.Resources(), collector.Logs()))
	runtest.Eventually(t, "the record carries the trace", func() bool {
		for _, r := range audited(t, hubFile, audit.Filter{Code: "ok"}) {
			return reqmeta.TraceID(r.Traceparent) == reqmeta.TraceID(parentOfTests)
		}
		return false
	})
}

func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}
