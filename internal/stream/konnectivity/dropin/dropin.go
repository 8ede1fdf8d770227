// SPDX-License-Identifier: Apache-2.0

// Package dropin has what the server and the agent of kubernetes-sigs/apiserver-network-proxy have in common as
// programs: flags of their logs, TLS from files, probes, metrics and profiles. It does not know the wire.
package dropin

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Logs are the flags of klog, which the reference logs with. Only the verbosity means something here.
type Logs struct{ Verbosity string }

// debugFrom is the verbosity from which the reference logs each packet.
const debugFrom = 5

// word is a flag of a type that pflag does not have.
type word struct{ value, kind string }

func (w *word) String() string     { return w.value }
func (w *word) Set(s string) error { w.value = s; return nil }
func (w *word) Type() string       { return w.kind }

// level is the flag of the verbosity.
type level struct{ value *string }

func (l level) String() string { return *l.value }
func (l level) Type() string   { return "Level" }
func (l level) Set(s string) error {
	if _, err := strconv.ParseInt(s, 10, 32); err != nil {
		return fmt.Errorf("a whole number is expected")
	}
	*l.value = s
	return nil
}

// Flags adds them.
func (l *Logs) Flags(fl *pflag.FlagSet) {
	l.Verbosity = "4"
	fl.VarP(level{&l.Verbosity}, "v", "v", "verbosity of the logs; from 5 on everything is logged")
	for name, is := range map[string]bool{"add-dir-header": false, "alsologtostderr": false, "logtostderr": true,
		"legacy-stderr-threshold-behavior": true, "one-output": false, "skip-headers": false, "skip-log-headers": false} {
		fl.Bool(name, is, Ignored)
	}
	for name, w := range map[string]word{"alsologtostderrthreshold": {"0", "severity"},
		"stderrthreshold":  {"2", "severity"},
		"log-backtrace-at": {":0", "traceLocation"}, "vmodule": {"", "moduleSpec"}} {
		fl.Var(&w, name, Ignored)
	}
	fl.String("log-dir", "", Ignored)
	fl.String("log-file", "", Ignored)
	fl.Uint64("log-file-max-size", 1800, Ignored)
}

// Ignored is the help of a flag without a meaning here.
const Ignored = "accepted and ignored"

// Meaningless are the flags of klog that are.
func Meaningless() []string {
	return []string{"add-dir-header", "alsologtostderr", "alsologtostderrthreshold", "legacy-stderr-threshold-behavior",
		"log-backtrace-at", "log-dir", "log-file", "log-file-max-size", "logtostderr", "one-output", "skip-headers",
		"skip-log-headers", "stderrthreshold", "vmodule"}
}

// Level is the verbosity in our words.
func (l *Logs) Level() string {
	if n, err := strconv.Atoi(l.Verbosity); err == nil && n >= debugFrom {
		return "debug"
	}
	return "info"
}

// Tell says once which flags were given that mean nothing here.
func Tell(log *slog.Logger, fl *pflag.FlagSet, meaningless []string) {
	var given []string
	fl.Visit(func(f *pflag.Flag) {
		if slices.Contains(meaningless, f.Name) {
			given = append(given, "--"+f.Name)
		}
	})
	if len(given) > 0 {
		log.Warn("flags of the reference that mean nothing here are ignored", "flags", given)
	}
}

// ID is the value of an environment variable, or a random UUID.
func ID(value string) string {
	if value != "" {
		return value
	}
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Labels reads labels such as a=b,c=d.
func Labels(text string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || key == "" {
			return nil, fault.Newf(fault.CodeUsage, "%q is no label", pair).
				Hint("write the labels of leases as key=value,key=value")
		}
		out[key] = value
	}
	return out, nil
}
