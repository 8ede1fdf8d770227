// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
)

// TestABrokenPodsFileIsTold, and learned anew; one that is not there, or is of another Node,
// is nothing special.
func TestABrokenPodsFileIsTold(t *testing.T) {
	const good = `{"node":"ka","uid":"u","ranges":["10.244.3.0/24"],"said":"2026-01-02T03:04:05Z"}`
	for name, c := range map[string]struct {
		text   string // "-": there is no file
		broken bool
		ranges int
	}{
		"none":            {"-", false, 0},
		"good":            {good, false, 1},
		"of another Node": {strings.Replace(good, "ka", "kb", 1), false, 0},
		"empty":           {"", true, 0},
		"zeroes":          {"\x00\x00", true, 0},
		"torn":            {good[:40], true, 0},
		"of no Node":      {`{}`, true, 0},
		"without a time":  {`{"node":"ka","uid":"u","ranges":["10.244.3.0/24"]}`, true, 0},
		"of nobody":       {strings.Replace(good, `"uid":"u",`, "", 1), true, 0},
		"too many": {`{"node":"ka","uid":"u","said":"2026-01-02T03:04:05Z","ranges":["` +
			strings.Repeat(`10.0.0.0/24","`, 64) + `10.0.0.0/24"]}`, true, 0},
	} {
		dir := t.TempDir()
		if c.text != "-" {
			if err := os.WriteFile(filepath.Join(dir, podsFile), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, broken, err := readPods(dir, "ka")
		if err != nil || fault.Has(broken, fault.CodeStateCorrupt) != c.broken || p.said.Node != "ka" || len(p.said.Ranges) != c.ranges {
			t.Errorf("%s: %+v, %v, %v", name, p, broken, err)
		}
		var log bytes.Buffer
		_, err = New(Config{
			Config: meshconf.Default(), StateDir: dir, RunDir: dir, Keys: slices.All([]seal.Keys{keysFrom(t, "n")}), Announce: member.Facts{Node: "a"}, PodsOf: "ka", ID: "m",
		}, Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Reg: prometheus.NewRegistry(), Members: &knower{}, Announcer: &knower{}, Services: &knower{}})
		if told := strings.Contains(log.String(), "code=state_corrupt") && strings.Contains(log.String(), podsFile); err != nil || told != c.broken {
			t.Errorf("%s: %v, and the log says %q", name, err, log.String())
		}
	}
}
