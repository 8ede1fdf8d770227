// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

func parse(text string) (Config, error) {
	var raw v1alpha1.HubConfig
	d := conf.Decode("f", []byte(text), &raw)
	c := Configure(raw.Audit, d.Add)
	return c, d.Err()
}

func TestConfigurations(t *testing.T) {
	off := Config{MaxSize: auditFile, MaxAge: auditAge, Keep: auditKept}
	file, out := off, off
	file.Path, out.Path, out.Strict = "/a/b", "-", true
	for text, want := range map[string]Config{
		"kind: x\n": off, "audit: {}\n": off, "audit: {path: /a//b/}\n": file, "audit: {path: '-', strict: true}\n": out,
		"audit: {path: /x, maxSize: 1GiB, maxAge: 90m, keep: 1, compress: true, strict: true}\n": {"/x", 1 << 30, 90 * time.Minute, 1, true, true},
	} {
		if c, err := parse(text); err != nil || c != want {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
}

func TestProblemsHaveAPlace(t *testing.T) {
	for text, want := range map[string]string{
		"audit: {strict: true}\n":                       "f:1:8: audit.path: is missing",
		"audit: {keep: 3}\n":                            "f:1:8: audit.path: is missing",
		"audit:\n  path: audit.jsonl\n":                 `f:2:9: audit.path: "audit.jsonl" is neither absolute nor -`,
		"audit:\n  path: '-'\n  compress: true\n":       "f:2:9: audit.path: standard output (-) is not rotated",
		"audit:\n  path: /x\n  maxSize: 1KiB\n":         "f:3:12: audit.maxSize: 1KiB is less than 64KiB",
		"audit:\n  path: /x\n  maxSize: 0KiB\n":         `f:3:12: audit.maxSize: "0KiB" is not a size`,
		"audit:\n  path: /x\n  maxAge: 0s\n":            `f:3:11: audit.maxAge: "0s" is no time`,
		"audit:\n  path: /x\n  maxSize: 100\n":          `f:3:12: audit.maxSize: "100" is not a size such as 64KiB, 100MiB or 1GiB`,
		"audit:\n  path: /x\n  maxSize: -1MiB\n":        `f:3:12: audit.maxSize: "-1MiB" is not a size`,
		"audit:\n  path: /x\n  maxSize: 9000000TiB":     `f:3:12: audit.maxSize: "9000000TiB" is not a size`,
		"audit:\n  path: /x\n  maxAge: 1s\n":            "f:3:11: audit.maxAge: 1s is less than 1m0s",
		"audit:\n  path: /x\n  maxAge: -1h\n":           "f:3:11: audit.maxAge: -1h0m0s is less than 1m0s",
		"audit:\n  path: /x\n  keep: 0\n":               "f:3:9: audit.keep: 0 is not between 1 and 1000",
		"audit:\n  path: /x\n  keep: 1001\n":            "f:3:9: audit.keep: 1001 is not between 1 and 1000",
		"audit:\n  path: /x\n  strict: perhaps\n":       "f:3:11: audit.strict: ",
		"audit:\n  path: /x\n  colour: red\n":           "f:3:3: audit.colour: unknown key",
		"audit:\n  path: /x\n  maxSize: 9999999GiB":     "",
		"audit:\n  path: /x\n  maxSize: 99999999999GiB": `audit.maxSize: "99999999999GiB" is not a size`,
	} {
		_, err := parse(text)
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") != 1 {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}

func TestSizesAreReadAsTheyAreWritten(t *testing.T) {
	for _, s := range []v1alpha1.Size{1 << 10, 3 << 10, 1 << 20, 100 << 20, 1 << 30, 5 << 40, 1025 << 10} {
		var back v1alpha1.Size
		if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
			t.Errorf("%d is written %s and read %d, %v", s, s, back, err)
		}
	}
	if got := fmt.Sprint(v1alpha1.Size(100<<20), v1alpha1.Size(0)); got != "100MiB 0KiB" {
		t.Error(got)
	}
}
