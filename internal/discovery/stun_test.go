// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/stunserver/stunservertest"
)

// TestTellsWhereCallersComeFrom: by UDP at the number of the main port, by default.
func TestTellsWhereCallersComeFrom(t *testing.T) {
	r := serve(t, nil)
	stunservertest.Answers(t, r.Listen())
	var st admin.DiscoveryStatus
	if err := admin.OverSocket(AdminSocket(r.cfg.RunDir)).Call(runtest.Within(t), "GET", "/v1/status", nil, &st); err != nil {
		t.Fatal(err)
	}
	if len(st.STUN.Listen) == 0 || st.STUN.Listen[0] != r.Listen() {
		t.Errorf("%+v", st.STUN)
	}
	runtest.Eventually(t, "the metrics count the answer, which they do once it is sent", func() bool {
		_, body, _ := get(t, r.connect("tcp", r.Admin()), "/metrics")
		const name = `tombolo_stun_answers_total{family="ipv4"} `
		return strings.Contains(body, name) && !strings.Contains(body, name+"0")
	})
}

func TestSTUNConfiguration(t *testing.T) {
	for text, field := range map[string]string{
		"stun: {listen: none}\n":                      "",
		"stun: {listen: ':3478', second: ':3479'}\n":  "",
		"stun: {second: none}\n":                      "",
		"stun: {listen: nonsense}\n":                  "stun.listen",
		"stun: {second: '1.2.3.4'}\n":                 "stun.second",
		"stun: {listen: none, second: ':3478'}\n":     "stun.second",
		"stun: {listen: ':3478', password: secret}\n": "stun.password",
	} {
		_, err := ParseConfig("x", []byte(head+text))
		if (err == nil) != (field == "") || err != nil && !strings.Contains(err.Error(), field) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
