// SPDX-License-Identifier: Apache-2.0

package conf_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/conf"
)

func TestNear(t *testing.T) {
	known := []string{"listen", "advertise", "log", "stun", "drainTimeout", "json", "text", "rule"}
	for word, want := range map[string]string{
		"listenn": "listen", "lisetn": "listen", "Listen": "listen", "advertize": "advertise", "draintimeout": "drainTimeout",
		"jsn": "json", "levl": "", "file": "", "colour": "", "": "", "xyz": "", "x": "", strings.Repeat("listen", 100): "",
	} {
		if got := conf.Near(word, known...); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := conf.Meant("txt", known...); got != "; did you mean text?" {
		t.Errorf("%q", got)
	}
}

func TestUnknownKeySaysWhatWasMeant(t *testing.T) {
	var into struct {
		Listen string `json:"listen"`
		Log    struct {
			Level string `json:"level"`
		} `json:"log"`
	}
	err := conf.Decode("f", []byte("listenn: x\nlog: {levle: info}\ncolour: red\n"), &into).Err()
	for _, want := range []string{
		"listenn: unknown key; did you mean listen? known here: listen, log", "log.levle: unknown key; did you mean level? known here: level",
		"colour: unknown key; known here: listen, log",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
