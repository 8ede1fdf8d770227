// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
)

// observe makes what takes the records and the spans of a role; nil is turned off.
func observe(cfg audit.Config, out otlp.Config, stdout io.Writer, o otlp.Options) (*audit.Writer, *otlp.Tracer, error) {
	logs, err := otlp.NewLogs(out, o)
	if err != nil {
		return nil, nil, err
	}
	to := audit.Options{Log: o.Log, Reg: o.Reg, Stdout: stdout}
	if logs != nil {
		to.Export = logs
	}
	records, err := audit.New(cfg, to)
	if err != nil {
		return nil, nil, err
	}
	traces, err := otlp.NewTracer(out, o)
	return records, traces, err
}

// while runs a role and what takes its records and spans.
func while(ctx context.Context, records *audit.Writer, traces *otlp.Tracer, fn func() error) error {
	return traces.While(ctx, func() error { return records.While(ctx, fn) })
}
