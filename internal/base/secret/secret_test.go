// SPDX-License-Identifier: Apache-2.0

package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/secret"
)

func TestNothingShowsIt(t *testing.T) {
	key := "hunter2"
	v := secret.Hide(&key)
	type holder struct {
		Open   secret.Value[string]
		closed secret.Value[string]
	}
	h := holder{v, v}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v, "h", h)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "h", &h)
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	shown := log.String() + string(text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		shown += fmt.Sprintf(verb, v) + fmt.Sprintf(verb, h) + fmt.Sprintf(verb, &h)
	}
	if strings.Contains(shown, "hunter") || strings.Contains(shown, "68756e74") || !strings.Contains(shown, "(secret)") {
		t.Errorf("%s", shown)
	}
	if *v.Get() != key || v.IsZero() || !(secret.Value[string]{}).IsZero() {
		t.Error("what is hidden is lost")
	}
}
