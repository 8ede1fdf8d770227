// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

type line map[string]any

// bounded is a logger of a role, at the level debug, and what it has written since it
// was asked last.
func bounded(t *testing.T) (*slog.Logger, func() []line) {
	t.Helper()
	var out bytes.Buffer
	log, err := telemetry.Logger(&out, "json", "debug")
	if err != nil {
		t.Fatal(err)
	}
	return log, func() (got []line) {
		for text := range strings.Lines(out.String()) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		out.Reset()
		return got
	}
}

// TestLogIsBounded floods the log in each way that peers have, and wants the bound of
// each, a line of everybody else, and sums that account for the rest.
func TestLogIsBounded(t *testing.T) {
	const flood = 5_000
	for name, c := range map[string]struct {
		line func(log *slog.Logger, n int)
		most int
		sums []string // clusters; "": of none
	}{
		"unauthenticated peers": {func(log *slog.Logger, n int) {
			log.Info("refused", telemetry.AttrPeer, fmt.Sprint("192.0.2.1:", n), telemetry.AttrCode, fault.CodeCertInvalid, telemetry.AttrReason, n)
		}, limit.LogEach, []string{""}},
		"one agent": {func(log *slog.Logger, n int) {
			log.With(telemetry.AttrCluster, "c1", telemetry.AttrAgent, "a1").Info("agent connected", "n", n)
		}, limit.LogEach, []string{"c1"}},
		"agents of one cluster": {func(log *slog.Logger, n int) {
			log.Info("agent connected", telemetry.AttrCluster, "c1", telemetry.AttrAgent, fmt.Sprint("a", n))
		}, telemetry.LogGroup, []string{"c1"}},
		"clusters together": {func(log *slog.Logger, n int) {
			log.Info("agent connected", telemetry.AttrCluster, fmt.Sprint("c", n%6), telemetry.AttrAgent, fmt.Sprint("a", n))
		}, telemetry.LogAll + 6*telemetry.LogShare, []string{"c0", "c1", "c2", "c3", "c4", "c5"}},
		"codes that a peer makes up": {func(log *slog.Logger, n int) {
			log.Info("refused", telemetry.AttrPeer, "192.0.2.1:1", telemetry.AttrCode, fmt.Sprint("made_up_", n))
		}, limit.LogEach, []string{""}},
		"names of nobody's": {func(log *slog.Logger, n int) {
			log.Info("this program has done it", "n", n)
		}, telemetry.LogGroup, []string{""}},
		"debug": {func(log *slog.Logger, n int) {
			log.Debug("dialled", telemetry.AttrCluster, "c1", telemetry.AttrCaller, "x")
		}, limit.LogDebug * limit.LogEach, []string{"c1"}},
		"a library": {func(log *slog.Logger, n int) {
			slog.NewLogLogger(telemetry.Texts(log, "http"), slog.LevelWarn).Printf("junk of %d", n)
		}, telemetry.LogGroup, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			log, got := bounded(t)
			for n := range flood {
				c.line(log, n)
			}
			written := len(got())
			if written > c.most || written < limit.LogEach {
				t.Errorf("%d lines were written, want %d at most", written, c.most)
			}
			log.Info("agent connected", telemetry.AttrCluster, "quiet", telemetry.AttrAgent, "a1")
			log.Info("refused", telemetry.AttrCluster, "quiet", telemetry.AttrCaller, "x", telemetry.AttrCode, fault.CodeCertInvalid)
			log.Info("certificate revoked", "identity", "x")
			if lines := got(); len(lines) != 3 {
				t.Errorf("the flood hides lines of others: %v", lines)
			}
			telemetry.TurnLog(context.Background(), log, time.Now())
			left, clusters := 0, []string{}
			for _, l := range got() {
				cluster, _ := l[telemetry.AttrCluster].(string)
				if l["msg"] != telemetry.LeftOut || l["line"] == "" || l["since"] == nil {
					t.Errorf("%v", l)
				}
				left += int(l["count"].(float64))
				clusters = append(clusters, cluster)
			}
			if left != flood-written || fmt.Sprint(clusters) != fmt.Sprint(c.sums) {
				t.Errorf("%d lines were left out of %d, written %d; sums of %q", left, flood, written, clusters)
			}
			c.line(log, 0)
			if len(got()) != 1 {
				t.Error("a new minute begins with lines")
			}
		})
	}
}

// TestLogTellsWhatItLeftOut shows that a sum comes with the next line, where nobody
// turns the minute, and that of kinds there is a bound too.
func TestLogTellsWhatItLeftOut(t *testing.T) {
	log, got := bounded(t)
	at := time.Unix(1_000_000, 0)
	write := func(message string) {
		if err := log.Handler().Handle(t.Context(), slog.NewRecord(at, slog.LevelInfo, message, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for range telemetry.LogGroup + 5 {
		write("said")
	}
	at = at.Add(limit.LogTold)
	got()
	write("other")
	if lines := got(); len(lines) != 2 || lines[0]["msg"] != telemetry.LeftOut || lines[0]["count"] != 5.0 || lines[0]["line"] != "said" {
		t.Errorf("%v", lines)
	}
	for n := range 3 * telemetry.LogKinds {
		write(fmt.Sprint("made up ", n))
	}
	if n := len(got()); n > telemetry.LogKinds+telemetry.LogGroup {
		t.Errorf("%d lines of made up messages", n)
	}
}
