// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// said is a control stream whose peer has said all that it will say, and reads all.
type said struct {
	io.Reader
	once sync.Once
	end  chan struct{}
}

func (s *said) Write(p []byte) (int, error) {
	select {
	case <-s.end:
		return 0, io.ErrClosedPipe
	default:
		return len(p), nil
	}
}

func (s *said) Reset(uint32) error {
	s.once.Do(func() { close(s.end) })
	return nil
}

// FuzzControlStream: whatever a peer says, the beat ends with its stream, with a
// code, and has passed on exactly the frames that a reader finds in the bytes.
func FuzzControlStream(f *testing.F) {
	var all []byte
	for _, m := range []*pb.Control{
		{Frame: &pb.Control_Ping{Ping: &pb.Ping{Number: 1}}}, {Frame: &pb.Control_Pong{Pong: &pb.Pong{Number: 1 << 63}}},
		{Frame: &pb.Control_Load{Load: &pb.Load{Streams: 1<<32 - 1}}}, {Frame: &pb.Control_Drain{Drain: &pb.Drain{Reason: "x"}}},
		{Frame: &pb.Control_Goodbye{Goodbye: &pb.Goodbye{Reason: &pb.Fault{Code: "x"}}}}, {}, {Frame: &pb.Control_Hello{Hello: &pb.Hello{}}},
	} {
		one, err := wire.Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(one)
		all = append(all, one...)
	}
	f.Add(all)
	f.Add(append(all, 0, 1, 0, 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		want := 0
		for r := bytes.NewReader(data); ; {
			var m pb.Control
			if wire.Read(r, limit.ControlFrame, &m) != nil {
				break
			}
			if m.GetFrame() != nil && m.GetPing() == nil && m.GetPong() == nil {
				want++
			}
		}
		s, got := &said{Reader: bytes.NewReader(data), end: make(chan struct{})}, 0
		b := heartbeat.New(heartbeat.Options{
			Stream: s, End: func() { s.Reset(0) }, LastReceived: time.Now,
			OnFrame: func(*pb.Control) { got++ }, OnRTT: func(time.Duration) {},
		})
		err := b.Run(t.Context())
		var coded *fault.Fault
		if !errors.As(err, &coded) || coded.Code == fault.CodeInternal {
			t.Errorf("it ended with %v", err)
		}
		if got != want {
			t.Errorf("%d frames of %d were passed on", got, want)
		}
	})
}
