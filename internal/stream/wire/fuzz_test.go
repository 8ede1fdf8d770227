// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// FuzzRead reads the bytes as each message: what is read is written and read as the same again.
func FuzzRead(f *testing.F) {
	for _, m := range vectors() {
		f.Add(frame(f, m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range []proto.Message{&pb.Control{}, &pb.DialRequest{}, &pb.DialReply{}} {
			if wire.Read(bytes.NewReader(data), limit.ControlFrame, m) != nil {
				continue
			}
			again := m.ProtoReflect().New().Interface()
			if err := wire.Read(bytes.NewReader(frame(t, m)), len(data)+limit.ControlFrame, again); err != nil || !proto.Equal(m, again) {
				t.Errorf("%v became %v, %v", m, again, err)
			}
		}
	})
}

func FuzzReadDial(f *testing.F) {
	f.Add(frame(f, vectors()["dial request"]))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := wire.ReadDial(bytes.NewReader(data))
		if err == nil && (d.Timeout < time.Millisecond || d.Timeout > 2*time.Minute) {
			t.Errorf("a deadline of %v", d.Timeout)
		}
	})
}

func FuzzReadReply(f *testing.F) {
	f.Add(frame(f, vectors()["dial reply"]))
	f.Add(frame(f, vectors()["dial reply with a fault"]))
	f.Fuzz(func(t *testing.T, data []byte) {
		at, _, err := wire.ReadReply(bytes.NewReader(data), false)
		if err == nil && !clean(at) {
			t.Errorf("resolved %q", at)
		}
	})
}
