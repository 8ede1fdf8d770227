// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func options(t testing.TB, log *runtest.Transcript) Options {
	t.Helper()
	return Options{Log: slog.New(slog.NewTextHandler(log, nil)), Reg: prometheus.NewPedanticRegistry()}
}

func dial(caller string) Record { return Record{Kind: KindDial, Time: time.Now(), Caller: caller} }

// records reads whole text and fails on a line that is none.
func records(t testing.TB, text []byte) (out []Record) {
	t.Helper()
	r := NewReader("x", bytes.NewReader(text))
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		out = append(out, rec)
	}
}

// tap is a sink that takes what it is allowed to.
type tap struct {
	mu     sync.Mutex
	out    bytes.Buffer
	shut   chan struct{} // a write waits for it, if it is there
	refuse error
	halves bool // a refused write leaves its first byte
	closed bool
}

func (s *tap) Write(b []byte) (int, error) {
	s.mu.Lock()
	shut := s.shut
	s.mu.Unlock()
	if shut != nil {
		<-shut
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		if s.halves {
			s.out.Write(b[:1])
			return 1, s.refuse
		}
		return 0, s.refuse
	}
	return s.out.Write(b)
}

func (s *tap) set(refuse error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func (s *tap) text() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.out.Bytes())
}

func (s *tap) Close() error         { s.closed = true; return nil }
func (*tap) Due() time.Time         { return time.Time{} }
func (*tap) Rotate()                {}
func (*tap) Tidy(_ context.Context) {}

func lostCount(w *Writer, reason string) float64 {
	return value(w.metrics.Lost, reason)
}

func value(c *prometheus.CounterVec, label string) float64 {
	var m dto.Metric
	if err := c.WithLabelValues(label).Write(&m); err != nil {
		return -1
	}
	return m.GetCounter().GetValue()
}

func TestEveryRecordIsWrittenOnce(t *testing.T) {
	var log runtest.Transcript
	s := &tap{}
	w := newWriter(Config{Path: "x"}, options(t, &log), s)
	const writers, each = 8, 200
	err := w.While(t.Context(), func() error {
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for range each {
					w.Write(dial(strconv.Itoa(i)))
				}
			})
		}
		wg.Wait()
		return io.ErrNoProgress
	})
	if err != io.ErrNoProgress {
		t.Errorf("While gave %v", err)
	}
	ids, by := map[string]bool{}, map[string]int{}
	for _, r := range records(t, s.text()) {
		ids[r.ID], by[r.Caller] = true, by[r.Caller]+1
	}
	if len(ids) != writers*each || len(by) != writers || by["3"] != each || !s.closed {
		t.Errorf("%d ids of %v, closed %v", len(ids), by, s.closed)
	}
	if n := value(w.metrics.Records, "dial"); n != writers*each {
		t.Errorf("the metric counts %v", n)
	}
	w.Write(dial("late"))
	if lostCount(w, lostStop) != 1 || log.String() == "" {
		t.Error("a record after the end is lost in silence")
	}
}

func TestAWriterThatIsOffDoesNothing(t *testing.T) {
	w, err := New(Config{Strict: true}, Options{})
	if w != nil || err != nil {
		t.Fatalf("%v, %v", w, err)
	}
	w.Write(dial("x"))
	if err := errors.Join(w.Admit(), w.While(t.Context(), func() error { return nil })); err != nil {
		t.Error(err)
	}
}

// TestASlowSinkHoldsNobodyUp fills the queue behind a sink that takes nothing.
func TestASlowSinkHoldsNobodyUp(t *testing.T) {
	for name, strict := range map[string]bool{"strict": true, "not strict": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log runtest.Transcript
				open := make(chan struct{})
				s := &tap{shut: open}
				w := newWriter(Config{Path: "x", Strict: strict}, options(t, &log), s)
				const lost = 10
				w.While(t.Context(), func() error {
					if err := w.Admit(); err != nil {
						t.Errorf("refused at first: %v", err)
					}
					w.Write(dial("first"))
					synctest.Wait() // it is being written now
					begun := time.Now()
					for range auditQueue + lost {
						w.Write(dial("x"))
					}
					if d := time.Since(begun); d != 0 {
						t.Errorf("writers waited %v", d)
					}
					if err := w.Admit(); strict != fault.Has(err, fault.CodeAudit) {
						t.Errorf("with a full queue a dial gets %v", err)
					}
					s.mu.Lock()
					s.shut = nil
					s.mu.Unlock()
					close(open)
					synctest.Wait()
					if err := w.Admit(); err != nil {
						t.Errorf("with an empty queue a dial gets %v", err)
					}
					return nil
				})
				var told int64
				all := records(t, s.text())
				for _, r := range all {
					if r.Kind == KindLost {
						told += r.Count
						if r.Since.IsZero() || r.ID == "" {
							t.Errorf("%+v", r)
						}
					}
				}
				if len(all) != 1+auditQueue+1 || told != lost || lostCount(w, lostQueue) != lost {
					t.Errorf("%d records, %d told of as lost, %v counted", len(all), told, lostCount(w, lostQueue))
				}
				if n := strings.Count(log.String(), "audit records are lost"); n != 1 {
					t.Errorf("the log says it %d times:\n%s", n, log.String())
				}
			})
		})
	}
}

// TestTheQueueIsBoundedInBytes hands over records of the greatest length.
func TestTheQueueIsBoundedInBytes(t *testing.T) {
	var log runtest.Transcript
	w := newWriter(Config{Path: "x", Strict: true}, options(t, &log), &tap{})
	big := dial(strings.Repeat("\x01", limit.AuditText))
	big.Rule, big.Hub, big.Agent = big.Caller, big.Caller, big.Caller
	for range 1000 { // of 12 KiB each
		w.Write(big)
	}
	if n := w.waiting.Load(); n > auditQueueBytes || lostCount(w, lostQueue) == 0 {
		t.Errorf("%d bytes wait, %v records are lost", n, lostCount(w, lostQueue))
	}
}

// TestALossIsToldOfOnceAMinute counts lines of the log.
func TestALossIsToldOfOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log runtest.Transcript
		w := newWriter(Config{Path: "x"}, options(t, &log), &tap{})
		for range auditQueue {
			w.Write(dial("x"))
		}
		for range 130 { // a loss each second
			w.Write(dial("x"))
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "audit records are lost"); n != 3 {
			t.Errorf("the log says it %d times in 130 s", n)
		}
	})
}

// TestADiskThatIsFull holds what is promised of a sink that refuses for a while:
// what waits is kept, what does not fit is told of, nothing is written twice.
func TestADiskThatIsFull(t *testing.T) {
	for name, halves := range map[string]bool{"nothing is written": false, "a part is written": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log runtest.Transcript
				s := &tap{halves: halves}
				w := newWriter(Config{Path: "x", Strict: true}, options(t, &log), s)
				w.While(t.Context(), func() error {
					w.Write(dial("a"))
					synctest.Wait()
					s.set(errors.New("no space left on device"))
					w.Write(dial("b"))
					synctest.Wait()
					if err := w.Admit(); !fault.Has(err, fault.CodeAudit) {
						t.Errorf("a dial gets %v", err)
					}
					for range auditQueue + 5 {
						w.Write(dial("c"))
					}
					s.set(nil)
					time.Sleep(limit.AuditRetry)
					synctest.Wait()
					if err := w.Admit(); err != nil {
						t.Errorf("when there is room again a dial gets %v", err)
					}
					return nil
				})
				all := records(t, s.text())
				told := int64(0)
				ids := map[string]bool{}
				for _, r := range all {
					ids[r.ID] = true
					told += r.Count
				}
				if len(all) != 2+auditQueue+1 || len(ids) != len(all) || told != 5 || lostCount(w, lostDisk) != 5 {
					t.Errorf("%d records, %d ids, %d told of as lost, %v counted", len(all), len(ids), told, lostCount(w, lostDisk))
				}
				for _, line := range []string{"audit records cannot be written", "audit records are written again", "audit records are lost"} {
					if strings.Count(log.String(), line) != 1 {
						t.Errorf("the log does not say %q once:\n%s", line, log.String())
					}
				}
			})
		})
	}
}

// TestAnEndWhileTheDiskIsFull does not wait, and counts.
func TestAnEndWhileTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log runtest.Transcript
		s := &tap{refuse: errors.New("no space left on device")}
		w := newWriter(Config{Path: "x"}, options(t, &log), s)
		begun := time.Now()
		w.While(t.Context(), func() error {
			for range 7 {
				w.Write(dial("x"))
			}
			synctest.Wait()
			return nil
		})
		if d := time.Since(begun); d > 0 || lostCount(w, lostStop) != 7 || !s.closed {
			t.Errorf("it took %v, %v records are counted, closed %v", d, lostCount(w, lostStop), s.closed)
		}
	})
}

// TestAnEndWhileAWriteHangs is bounded.
func TestAnEndWhileAWriteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log runtest.Transcript
		open := make(chan struct{})
		w := newWriter(Config{Path: "x"}, options(t, &log), &tap{shut: open})
		begun := time.Now()
		w.While(t.Context(), func() error {
			w.Write(dial("x"))
			synctest.Wait()
			w.Write(dial("y"))
			return nil
		})
		if d := time.Since(begun); d != limit.Shutdown || lostCount(w, lostStop) == 0 {
			t.Errorf("it took %v, %v are counted", d, lostCount(w, lostStop))
		}
		close(open)
	})
}

func TestStandardOutput(t *testing.T) {
	var log, out runtest.Transcript
	o := options(t, &log)
	o.Stdout = &out
	w, err := New(Config{Path: Stdout}, o)
	if err != nil {
		t.Fatal(err)
	}
	w.While(t.Context(), func() error { w.Write(dial("x")); return nil })
	if all := records(t, []byte(out.String())); len(all) != 1 || all[0].Caller != "x" {
		t.Errorf("%q", out.String())
	}
}

func BenchmarkWrite(b *testing.B) {
	var log runtest.Transcript
	o := options(b, &log)
	o.Stdout = io.Discard
	w, err := New(Config{Path: Stdout}, o)
	if err != nil {
		b.Fatal(err)
	}
	r := full()
	b.ReportAllocs()
	w.While(b.Context(), func() error {
		for b.Loop() {
			w.Write(r)
		}
		return nil
	})
}
