// SPDX-License-Identifier: Apache-2.0

package conf_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/conf"
)

func TestWhatAllFilesHave(t *testing.T) {
	var said []string
	add := conf.Report(func(path, format string, args ...any) { said = append(said, path+": "+fmt.Sprintf(format, args...)) })
	for _, address := range []string{":0", ":65535", "host:1", "[::1]:80"} {
		add.Listener("good", address)
	}
	for _, address := range []string{"", "host", ":", ":00", ":65536", ":+1", ":http", "::1:80"} {
		add.Listener("at", address)
	}
	for _, level := range []string{"", "debug", "info", "warn", "error", "Warn"} {
		add.Log("", level)
	}
	for _, format := range []string{"text", "json", "yaml"} {
		add.Log(format, "")
	}
	for d, want := range map[time.Duration]time.Duration{0: time.Hour, 1: 1} {
		if got := add.Positive("d", d, time.Hour); got != want {
			t.Errorf("%v for %v", got, d)
		}
	}
	add.Positive("d", -time.Second, time.Hour)
	want := []string{
		`at: "" is not host:port or :port`, `at: "host" is not host:port or :port`, `at: ":" is not host:port or :port`,
		`at: ":00" is not host:port or :port`, `at: ":65536" is not host:port or :port`, `at: ":+1" is not host:port or :port`,
		`at: ":http" is not host:port or :port`, `at: "::1:80" is not host:port or :port`,
		`log.level: "Warn" is none of debug, info, warn, error; did you mean warn?`, `log.format: "yaml" is neither text nor json`, `d: -1s is negative`,
	}
	if !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
}

func TestSettingsThatChanged(t *testing.T) {
	if got := (conf.Settings{{"b", false}, {"same", true}, {"a", false}}).Changed(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("%q", got)
	}
	if got := (conf.Settings{{"same", true}}).Changed(); got != nil {
		t.Errorf("%q", got)
	}
}
