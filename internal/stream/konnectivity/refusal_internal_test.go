// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// recording is a listener that records what its callers are refused.
type recording struct {
	net.Listener
	got []error
}

func (r *recording) Refused(_ wire.Peer, err error) { r.got = append(r.got, err) }

// A stream beyond a socket's bound is told of, with the bound: to a listener that
// records, else to the log.
func TestStreamsBeyondTheBoundAreTold(t *testing.T) {
	for _, records := range []bool{false, true} {
		var log bytes.Buffer
		f, to := New(slog.New(slog.NewTextHandler(&log, nil))), &recording{}
		var ln net.Listener = to
		if !records {
			ln = to.Listener
		}
		err := tooMany(t.Context(), f.refuser(ln), "%d streams are open on this socket", 7)
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the caller gets %v", err)
		}
		if records {
			if len(to.got) != 1 || !fault.Has(to.got[0], fault.CodeLimit) || log.Len() > 0 {
				t.Errorf("the listener gets %v, the log %s", to.got, &log)
			}
			continue
		}
		for _, part := range []string{"limit_reached", "7 streams are open"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("the log lacks %q: %s", part, &log)
			}
		}
	}
}
