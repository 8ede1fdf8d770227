// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

// TestAStreamThatIsNotReadKeepsItsPlace: something has what its target sent, though the target
// has ended, and with it the connection.
func TestAStreamThatIsNotReadKeepsItsPlace(t *testing.T) {
	r := newRigBound(t, 2)
	conn, err := grpc.NewClient("passthrough:///"+r.socket, append(r.options(), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{})),
		grpc.WithStaticStreamWindowSize(64<<10))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	deaf := call(t, conn, proxy)
	deaf.open("target:1")
	target := r.target()
	if _, err := target.Write(make([]byte, 64<<10+konnectivity.KonnectivityData)); err != nil {
		t.Fatal(err)
	}
	target.Close()
	opens := func() (c *caller, id int64) {
		t.Helper()
		runtest.Eventually(t, "a place is free", func() bool { // a moment after the status of who had it
			c = call(t, conn, proxy)
			c.say(dialRequest("echo:1"))
			p, err := c.hear()
			id = p.GetDialResponse().GetConnectID()
			return err == nil
		})
		return c, id
	}
	for range 20 {
		other, id := opens()
		other.say(closeRequest(id))
		other.want(pb.PacketType_CLOSE_RSP)
		other.ends(codes.OK, "")
	}
	opens()
	call(t, conn, proxy).ends(codes.ResourceExhausted, "2 streams are open")
	deaf.ends(codes.OK, "")
	opens()
}
