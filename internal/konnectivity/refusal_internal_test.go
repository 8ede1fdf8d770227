// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A stream beyond a socket's bound is in the log, with the bound.
func TestStreamsBeyondTheBoundAreLogged(t *testing.T) {
	var log bytes.Buffer
	err := New(slog.New(slog.NewTextHandler(&log, nil))).tooMany(t.Context(), "%d streams are open on this socket", 7)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the caller gets %v", err)
	}
	for _, part := range []string{"limit_reached", "7 streams are open"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log lacks %q: %s", part, &log)
		}
	}
}
