// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// FuzzGreeting: whatever comes, an agent that is admitted has an id within its bound, and no more is read than a frame.
func FuzzGreeting(f *testing.F) {
	for _, head := range []metadata.MD{
		metadata.Pairs(headAgentID, "a", headIdentifiers, "host=a&cidr=10.0.0.0/8", headToken, bearer+"t"),
		metadata.Pairs(headServerID, "s", headServerCount, "3"), {},
	} {
		raw, err := wire.Append(nil, greeting(head))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(raw, "behind it"...))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	agents := NewAgents(AgentsOptions{Log: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, raw []byte) {
		from := bytes.NewReader(raw)
		head, err := readGreeting(from)
		if read := len(raw) - from.Len(); read > limit.RequestHeader+4 {
			t.Errorf("%d bytes were read", read)
		}
		if err != nil {
			return
		}
		if who, err := agents.admit(context.Background(), head, tls.ConnectionState{}); err == nil &&
			(who.agent == "" || len(who.agent) > 4*mostAgentID) {
			t.Errorf("the agent %q was admitted", who.agent)
		}
		u, err := newUpstream(context.Background(), nil, head, UpstreamOptions{})
		if err == nil && len(u.ServerID) > 4*mostAgentID {
			t.Errorf("the server is %q", u.ServerID)
		}
		var again bytes.Buffer
		if err := wire.Write(&again, greeting(head)); err != nil {
			t.Fatal(err)
		}
		if again.Len() <= limit.RequestHeader {
			if same, err := readGreeting(io.Reader(&again)); err != nil || same.Len() != head.Len() {
				t.Errorf("%v came back as %v: %v", head, same, err)
			}
		}
	})
}
