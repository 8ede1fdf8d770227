// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	pb "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// TestWhatACallerSays is handed to the dial; what breaks a bound is refused, with a code in the trailer.
func TestWhatACallerSays(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	dials := make(chan wire.Dial, 1)
	r := newRigOf(t, func(dial dialFunc) dialFunc {
		return func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
			dials <- d
			return dial(ctx, d)
		}
	})
	conn := connect(t, r)
	say := func(address string, pairs ...string) *caller {
		ctx := metadata.AppendToOutgoingContext(within(t), pairs...)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, proxy)
		if err != nil {
			t.Fatal(err)
		}
		c := &caller{t, conn, stream}
		c.say(dialRequest(address))
		return c
	}
	refused := func(c *caller, code string) {
		t.Helper()
		if m := c.want(pb.PacketType_DIAL_RSP).GetDialResponse(); !strings.HasPrefix(m.GetError(), code) || m.GetConnectID() != 0 {
			t.Errorf("%v, want %s", m, code)
		}
		c.ends(codes.OK, "")
		if got := c.stream.Trailer().Get("tombolo-fault"); len(got) != 1 || got[0] != code {
			t.Errorf("the trailer has %q, want %s", got, code)
		}
	}
	refused(say("refused:1", "traceparent", parent, "tracestate", "a=1", "tombolo-metadata", "ticket=OPS%201", "tombolo-metadata", "team=blue", "x-other", "1"), "dial_refused")
	d := <-dials
	if d.Trace != parent || d.TraceState != "a=1" || len(d.Metadata) != 2 || d.Metadata[0].Value != "OPS 1" || d.Metadata[1].Key != "team" {
		t.Errorf("%+v", d)
	}
	refused(say("refused:1", "tombolo-metadata", "no pair"), "request_malformed")
	if len(dials) != 0 {
		t.Error("it was dialled")
	}
}
