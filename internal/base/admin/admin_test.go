// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func TestEveryClassHasItsStatus(t *testing.T) {
	want := map[fault.Class]int{
		fault.Internal: http.StatusInternalServerError, fault.Invalid: http.StatusBadRequest,
		fault.Unauthenticated: http.StatusUnauthorized, fault.Denied: http.StatusForbidden,
		fault.NotFound: http.StatusNotFound, fault.Conflict: http.StatusConflict,
		fault.Unavailable: http.StatusServiceUnavailable, fault.Timeout: http.StatusGatewayTimeout,
		fault.Upstream: http.StatusBadGateway, fault.Exhausted: http.StatusTooManyRequests,
		fault.Class(200): http.StatusInternalServerError,
	}
	for class, status := range want {
		if got := admin.HTTPStatus(class); got != status {
			t.Errorf("class %d: %d, want %d", class, got, status)
		}
	}
	for _, e := range fault.Table() {
		if _, ok := want[e.Class]; !ok {
			t.Errorf("code %s has class %d, which has no status here", e.Code, e.Class)
		}
	}
}

func TestAFaultSurvivesAsJSON(t *testing.T) {
	f := fault.New(fault.CodeNoAgent, "cluster c1 has no live agent").Whyf("a1 left 3s ago").Hint("look")
	text, err := json.Marshal(admin.BodyOf(f))
	if err != nil {
		t.Fatal(err)
	}
	var b admin.FaultBody
	if err := json.Unmarshal(text, &b); err != nil || b.Fault().Explain() != f.Explain() || b.Fault().Code != f.Code {
		t.Errorf("%s became %v, %v", text, b.Fault(), err)
	}
	if admin.BodyOf(nil) != nil {
		t.Error("no fault has a body")
	}
}

func TestTheHeadOfAStream(t *testing.T) {
	var b strings.Builder
	if err := admin.SwitchProtocols(&b); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.HasPrefix(got, "HTTP/1.1 101 ") || !strings.Contains(got, "Upgrade: "+admin.StreamProtocol+"\r\n") || !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("%q", got)
	}
}
