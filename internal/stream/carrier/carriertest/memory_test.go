// SPDX-License-Identifier: Apache-2.0

package carriertest_test

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/carrier/carriertest"
)

func TestMemory(t *testing.T) {
	carriertest.Run(t, func(_ *testing.T, o carrier.Options) carriertest.Pair {
		return carriertest.Memory(carriertest.MemoryOptions{Incoming: o.Incoming})
	})
}

// TestMemoryInABubble: deadlines follow the clock of the bubble, and a stream
// that waits counts as waiting.
func TestMemoryInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := carriertest.Memory(carriertest.MemoryOptions{Window: 10})
		begin := time.Now()
		near, err := p.A.OpenStream(t.Context(), []byte("hello"))
		if err != nil {
			t.Fatal(err)
		}
		far, err := p.B.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		near.SetReadDeadline(begin.Add(time.Hour))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Hour {
			t.Fatalf("%v after %v", err, time.Since(begin))
		}
		read := make(chan string)
		go func() {
			time.Sleep(time.Hour) // of the bubble
			b, err := io.ReadAll(far)
			if err != nil {
				t.Error(err)
			}
			read <- string(b)
		}()
		if n, err := near.Write([]byte(" bubble")); n != 7 || err != nil || time.Since(begin) != 2*time.Hour {
			t.Fatalf("%d, %v after %v; the window holds 10 bytes", n, err, time.Since(begin))
		}
		if got := p.B.Traffic().LastReceived; !got.Equal(begin) && !got.Equal(begin.Add(2*time.Hour)) {
			t.Errorf("last received at %v", got)
		}
		near.CloseWrite()
		if got := <-read; got != "hello bubble" {
			t.Errorf("got %q", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.B.AcceptStream(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("accept: %v", err)
		}
		p.Cut()
		<-p.B.Done()
	})
}
