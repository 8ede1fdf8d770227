// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

func TestRTT(t *testing.T) {
	bubble(t, 50*time.Millisecond, func(t *testing.T, a, b *beat) {
		if a.RTT() != 0 {
			t.Errorf("a round trip of %v before the first", a.RTT())
		}
		time.Sleep(5 * time.Second)
		for name, x := range map[string]*beat{"a": a, "b": b} {
			if got := x.RTT(); got != 100*time.Millisecond {
				t.Errorf("%s measured %v, want 100ms", name, got)
			}
			x.mu.Lock()
			if len(x.rtts) != 1 {
				t.Errorf("%s reported %d round trips, want 1", name, len(x.rtts))
			}
			x.mu.Unlock()
		}
	})
}

// TestDead: silence is noticed within 3 s where something is live, else within 30 s.
func TestDead(t *testing.T) {
	for _, c := range []struct {
		name           string
		busy           int
		want, promised time.Duration
	}{{"live", 1, limit.DeadLive, 3 * time.Second}, {"idle", 0, limit.DeadIdle, 30 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, a, b *beat) {
				a.Busy(c.busy)
				b.Busy(c.busy)
				time.Sleep(65300 * time.Millisecond) // a link that answers stays up
				select {
				case err := <-a.result:
					t.Fatalf("a healthy link ended: %v", err)
				default:
				}
				b.end.cut.Store(true)
				heard := time.Unix(0, a.end.last.Load())
				err := <-a.result
				if took := time.Since(heard); took < c.want || took > c.promised {
					t.Errorf("noticed %v after the last byte, want %v and at most %v", took, c.want, c.promised)
				}
				if !fault.Has(err, fault.CodeSessionLost) || !strings.Contains(err.Error(), "no byte came for "+c.want.String()) {
					t.Errorf("ended with %v", err)
				}
				if err := <-b.result; !fault.Has(err, fault.CodeSessionLost) {
					t.Errorf("the other end: %v", err)
				}
			})
		})
	}
}

// TestDeadFromBusy: a session that becomes live on a link that is dead already
// gets the full live bound, and no more.
func TestDeadFromBusy(t *testing.T) {
	bubble(t, 0, func(t *testing.T, a, b *beat) {
		time.Sleep(time.Second)
		a.end.cut.Store(true)
		b.end.cut.Store(true)
		time.Sleep(15 * time.Second)
		begin := time.Now()
		a.Busy(+1)
		err := <-a.result
		if took := time.Since(begin); took != limit.DeadLive || !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("ended after %v with %v", took, err)
		}
	})
}

// TestDeadUnderShortDials: dials that come and go do not give a dead link a new
// beginning with each.
func TestDeadUnderShortDials(t *testing.T) {
	bubble(t, 0, func(t *testing.T, a, b *beat) {
		time.Sleep(time.Second)
		b.end.cut.Store(true)
		begin := time.Now()
		for {
			a.Busy(+1)
			select {
			case err := <-a.result:
				if took := time.Since(begin); took > limit.DeadLive+time.Second || !fault.Has(err, fault.CodeSessionLost) {
					t.Errorf("ended after %v with %v", took, err)
				}
				return
			case <-time.After(200 * time.Millisecond):
			}
			a.Busy(-1)
			time.Sleep(200 * time.Millisecond)
			if time.Since(begin) > 2*limit.DeadLive {
				t.Fatal("a dead link lives on under short dials")
			}
		}
	})
}

// TestPace: a link that is silent is asked at each interval, by one end or the
// other: a ping is a byte that its receiver has heard.
func TestPace(t *testing.T) {
	bubble(t, 0, func(t *testing.T, a, b *beat) {
		during := func(d time.Duration) int64 {
			time.Sleep(300 * time.Millisecond) // never end on a ping's own instant
			before := a.end.pings.Load() + b.end.pings.Load()
			time.Sleep(d)
			return a.end.pings.Load() + b.end.pings.Load() - before
		}
		time.Sleep(time.Second)
		if n := during(time.Minute); n < 6 || n > 12 { // both are due when one's ping arrives
			t.Errorf("%d pings in an idle minute, want 6 to 12", n)
		}
		a.Busy(+1)
		a.Busy(+1)
		if n := during(10 * time.Second); n != 10 {
			t.Errorf("%d pings in 10 live seconds, want 10", n)
		}
		a.Busy(-1)
		if n := during(10 * time.Second); n != 10 {
			t.Errorf("%d pings in 10 s with one of two streams left, want 10", n)
		}
		a.Busy(-1)
		time.Sleep(limit.DeadLive) // it counts as live for that long
		if n := during(time.Minute); n < 6 || n > 12 {
			t.Errorf("%d pings in an idle minute again, want 6 to 12", n)
		}
	})
}

func TestProbe(t *testing.T) {
	bubble(t, 20*time.Millisecond, func(t *testing.T, a, b *beat) {
		time.Sleep(time.Second)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := a.Probe(ctx); err != nil || time.Since(begin) != 40*time.Millisecond {
			t.Errorf("probed %v after %v", err, time.Since(begin))
		}
		cancel()
		b.end.cut.Store(true)
		begin = time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("probed %v after %v, want the deadline", err, time.Since(begin))
		}
	})
}

// TestProbeAnyByte: a peer whose pong is lost but that is heard is alive.
func TestProbeAnyByte(t *testing.T) {
	bubble(t, 0, func(t *testing.T, a, b *beat) {
		time.Sleep(time.Second)
		a.end.cut.Store(true) // b never sees the ping
		b.Send(&pb.Control{Frame: &pb.Control_Load{Load: &pb.Load{Streams: 3}}})
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- a.Probe(ctx) }()
		time.Sleep(100 * time.Millisecond)
		b.Send(&pb.Control{Frame: &pb.Control_Load{Load: &pb.Load{Streams: 4}}})
		if err := <-done; err != nil {
			t.Errorf("probed %v", err)
		}
	})
}

// TestProbeOfAnEndedSession: a dial that waits for the answer fails over at once.
func TestProbeOfAnEndedSession(t *testing.T) {
	ended := make(chan struct{})
	a := heartbeat.New(heartbeat.Options{Done: ended, LastReceived: func() time.Time { return time.Time{} }})
	done := make(chan error, 1)
	go func() { done <- a.Probe(t.Context()) }()
	select {
	case err := <-done:
		t.Fatalf("probed %v while the session lived", err)
	default:
	}
	close(ended)
	if err := <-done; !fault.Has(err, fault.CodeSessionLost) {
		t.Errorf("probed %v, want session_lost", err)
	}
}

// frame puts a length in front of a body.
func frame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// TestFrames: frames pass to their owner in order; what a newer version says is ignored.
func TestFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := link(0)
		a := run(t.Context(), x)
		go io.Copy(io.Discard, y)
		unknown := protowire.AppendTag(nil, 99, protowire.BytesType)
		unknown = protowire.AppendString(unknown, "from a newer version")
		for _, body := range [][]byte{unknown, nil, unknown} {
			y.Conn.Write(frame(body))
		}
		for n := range uint32(3) {
			wire.Write(y.Conn, &pb.Control{Frame: &pb.Control_Load{Load: &pb.Load{Streams: n}}})
		}
		wire.Write(y.Conn, &pb.Control{Frame: &pb.Control_Pong{Pong: &pb.Pong{Number: 1 << 40}}}) // of no ping
		synctest.Wait()
		a.mu.Lock()
		if len(a.frames) != 3 || a.frames[2].GetLoad().GetStreams() != 2 || len(a.rtts) != 0 {
			t.Errorf("passed %v, round trips %v", a.frames, a.rtts)
		}
		a.mu.Unlock()
		y.Close()
		if err := <-a.result; !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestBadFrames: each end of a hostile or broken peer has its code and is prompt.
func TestBadFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		sent []byte
		want fault.Code
	}{
		{"oversized", binary.BigEndian.AppendUint32(nil, limit.ControlFrame+1), fault.CodeFrameTooLarge},
		{"huge", []byte{0xff, 0xff, 0xff, 0xff}, fault.CodeFrameTooLarge},
		{"garbage", frame([]byte{0xff, 0xff, 0xff}), fault.CodeFrameInvalid},
		{"text of another protocol", []byte("GET / HTTP/1.1\r\n\r\n"), fault.CodeFrameTooLarge},
		{"cut in the length", []byte{0, 0}, fault.CodeSessionLost},
		{"cut in the body", []byte{0, 0, 0, 9, 1}, fault.CodeSessionLost},
		{"nothing", nil, fault.CodeSessionLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, y := link(0)
				a := run(t.Context(), x)
				go io.Copy(io.Discard, y)
				y.Conn.Write(c.sent)
				if c.want == fault.CodeSessionLost {
					y.Close()
				}
				begin := time.Now()
				err := <-a.result
				if !fault.Has(err, c.want) || time.Since(begin) != 0 {
					t.Errorf("ended after %v with %v, want %s", time.Since(begin), err, c.want)
				}
				y.Close()
			})
		})
	}
}

// TestBlockedWriter: a peer that reads nothing blocks our writer. The link is
// found dead in time all the same, Run returns with it, and Send never waits.
func TestBlockedWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := link(0)
		a := run(t.Context(), x)
		a.Busy(+1)
		begin := time.Now()
		refused := 0
		for range 1_000 {
			if !a.Send(&pb.Control{Frame: &pb.Control_Load{Load: &pb.Load{Streams: 1}}}) {
				refused++
			}
		}
		if time.Since(begin) != 0 || refused == 0 {
			t.Errorf("1,000 frames for a blocked link took %v, %d refused", time.Since(begin), refused)
		}
		err := <-a.result
		if took := time.Since(begin); took != limit.DeadLive || !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("ended after %v with %v", took, err)
		}
		y.Close()
	})
}

func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		x, y := link(0)
		a := run(ctx, x)
		go io.Copy(io.Discard, y)
		time.Sleep(time.Second)
		cancel()
		if err := <-a.result; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		if _, err := y.Conn.Write([]byte{1}); err == nil {
			t.Error("the connection is still open")
		}
		y.Close()
	})
}

// TestStalled: an end that did not run for longer than the bound, as on a machine that
// stood still, does not take that for the silence of its peer. A link that is dead it
// notices all the same.
func TestStalled(t *testing.T) {
	const stall = 3 * limit.DeadLive
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		x, y := link(time.Millisecond)
		var looks atomic.Int32
		var healed atomic.Bool
		a := runStalled(ctx, x, func() {
			if n := looks.Add(1); n%4 == 0 && !healed.Load() {
				time.Sleep(stall)
			}
		})
		b := run(ctx, y)
		a.Busy(1)
		b.Busy(1)
		time.Sleep(20 * stall)
		select {
		case err := <-a.result:
			t.Fatalf("ended after a stall of its own: %v", err)
		default:
		}
		if n := looks.Load(); n < 20 {
			t.Fatalf("looked only %d times: it did not stall often", n)
		}
		healed.Store(true)
		time.Sleep(2 * stall) // the last is over
		y.cut.Store(true)
		begin := time.Now()
		err := <-a.result
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("a dead link was noticed after %v", took)
		}
		if !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("ended with %v", err)
		}
		cancel()
		<-b.result
		synctest.Wait()
	})
}
