// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

// Logs sends lines of JSON, audit records, as log records. The line is the body;
// its fields are attributes too.
type Logs struct {
	client   *client
	resource *resourcepb.Resource
}

// NewLogs makes a Logs, nil without an endpoint.
func NewLogs(c Config, o Options) (*Logs, error) {
	if c.Logs.URL == "" {
		return nil, nil
	}
	client, err := newClient(c.Logs)
	if err != nil {
		return nil, err
	}
	l := &Logs{client: client, resource: &resourcepb.Resource{}}
	for _, a := range o.attributes() {
		l.resource.Attributes = append(l.resource.Attributes, pair(string(a.Key), text(a.Value.AsString())))
	}
	return l, nil
}

// Where names the collector.
func (l *Logs) Where() string { return l.client.URL }

// Close closes the connection.
func (l *Logs) Close() { l.client.close() }

// Export sends whole lines. After an error all of them may be sent again; rejected is
// the number of lines that the collector refused for good.
func (l *Logs) Export(ctx context.Context, lines []byte) (rejected int64, err error) {
	scope := &logspb.ScopeLogs{Scope: &commonpb.InstrumentationScope{Name: "github.com/tombolo-io/tombolo/audit"}}
	now := uint64(time.Now().UnixNano())
	for line := range bytes.Lines(lines) {
		if r := logRecord(bytes.TrimSuffix(line, []byte("\n")), now); r != nil {
			scope.LogRecords = append(scope.LogRecords, r)
		}
	}
	// LogsData has the bytes of ExportLogsServiceRequest.
	body, err := proto.Marshal(&logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{Resource: l.resource,
		ScopeLogs: []*logspb.ScopeLogs{scope}}}})
	if err != nil {
		return int64(len(scope.LogRecords)), nil // invalid UTF-8, which no line has
	}
	rejected, err = l.client.post(ctx, body)
	if errors.Is(err, errRefused) {
		return int64(len(scope.LogRecords)), nil
	}
	return min(rejected, int64(len(scope.LogRecords))), err // a collector may claim anything
}

func logRecord(line []byte, now uint64) *logspb.LogRecord {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		return nil
	}
	kind, _ := fields["kind"].(string)
	r := &logspb.LogRecord{
		ObservedTimeUnixNano: now, EventName: "tombolo.audit." + kind, Body: text(string(line)),
		SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
	}
	switch kind {
	case "refusal":
		r.SeverityNumber, r.SeverityText = logspb.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
	case "lost":
		r.SeverityNumber, r.SeverityText = logspb.SeverityNumber_SEVERITY_NUMBER_ERROR, "ERROR"
	}
	if at, err := time.Parse(time.RFC3339Nano, textOf(fields["time"])); err == nil {
		r.TimeUnixNano = uint64(at.UnixNano())
	}
	if parent := textOf(fields["traceparent"]); reqmeta.IsTraceparent(parent) {
		r.TraceId, _ = hex.DecodeString(reqmeta.TraceID(parent))
		r.SpanId, _ = hex.DecodeString(parent[36:52])
	}
	r.Attributes = attributes(nil, "tombolo.", fields)
	return r
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

// attributes flattens an object, in the order of its keys.
func attributes(out []*commonpb.KeyValue, prefix string, fields map[string]any) []*commonpb.KeyValue {
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		switch v := fields[k].(type) {
		case map[string]any:
			out = attributes(out, prefix+k+".", v)
		case string:
			out = append(out, pair(prefix+k, text(v)))
		case json.Number:
			if n, err := v.Int64(); err == nil {
				out = append(out, pair(prefix+k, &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}))
			} else if f, err := v.Float64(); err == nil {
				out = append(out, pair(prefix+k, &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}))
			}
		}
	}
	return out
}

func pair(key string, v *commonpb.AnyValue) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: v}
}

func text(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}
