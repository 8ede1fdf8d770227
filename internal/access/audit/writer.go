// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Reasons for which records are lost.
const (
	lostQueue    = "queue_full" // they arrived faster than they could be written
	lostDisk     = "disk"       // the file, or standard output, could not be written
	lostAway     = "collector"  // the collector could not be reached
	lostRejected = "refused"    // the collector rejected them
	lostStop     = "stopped"    // the process ended before they were written
)

// Writer writes records. Write queues a record and returns; one goroutine writes.
//
//	Write ──► queue (bounded) ──► own ──► sink: a file that rotates, stdout, or a collector
//	   └─ full: counted, and reported by a record of kind lost
//
// A file and a collector have a queue each, so that neither waits for the other, and
// a loss is reported where it happened.
//
// A nil Writer is disabled: it admits everything and keeps nothing.
type Writer struct {
	strict  bool
	where   string  // for messages: the file, or the collector
	down    string  // the loss reason while nothing can be written
	also    *Writer // the collector's, if there is a file too
	log     *slog.Logger
	metrics *telemetry.Audit
	sink    sink
	queue   chan []byte
	waiting atomic.Int64 // bytes in the queue
	run     string       // prefix of every id
	count   atomic.Int64
	gaps    atomic.Int64 // records of kind lost, whose ids two Writers share
	broken  atomic.Bool  // the last write failed
	stopped atomic.Bool
	second  bool // the other Writer counts the records
	lost    losses
	asides  chan asideRequest
	told    atomic.Int64 // when a loss was last logged, Unix nanoseconds
}

// sink takes lines. As with io.Writer, a Write that fails has kept n bytes, and the
// rest may be written again later.
type sink interface {
	io.WriteCloser
	// Due is the time at which to call Rotate; zero: never.
	Due() time.Time
	Rotate()
	// Tidy does slow work concurrently with the writing, until ctx ends.
	Tidy(ctx context.Context)
}

// Options are what a Writer needs besides its configuration.
type Options struct {
	Log    *slog.Logger
	Reg    prometheus.Registerer
	Stdout io.Writer // for the path -
	Export Exporter  // nil: there is no collector
}

// New opens the file. Without a path and a collector it returns nil, which is a
// disabled Writer. An error is a fault with the code CodeAudit.
func New(cfg Config, o Options) (*Writer, error) {
	if cfg.Path == "" && o.Export == nil {
		return nil, nil
	}
	if cfg.Path == "" {
		return newExporting(cfg, o, newMetrics(o)), nil
	}
	var s sink = stream{o.Stdout}
	if cfg.Path != Stdout {
		f, err := openFile(cfg, o.Log)
		if err != nil {
			return nil, err
		}
		s = f
	}
	w := newWriter(cfg, o, s)
	if o.Export != nil {
		w.also = newExporting(cfg, o, w.metrics)
		w.also.second, w.also.run = true, w.run
	}
	return w, nil
}

func newWriter(cfg Config, o Options, s sink) *Writer {
	where := cfg.Path
	if where == Stdout {
		where = "standard output"
	}
	w := newLane(cfg, o, newMetrics(o))
	w.where, w.down, w.sink = where, lostDisk, s
	return w
}

// newLane makes a Writer without its sink.
func newLane(cfg Config, o Options, m *telemetry.Audit) *Writer {
	return &Writer{
		strict: cfg.Strict, log: o.Log, queue: make(chan []byte, auditQueue), run: strings.ToLower(rand.Text()[:10]),
		metrics: m, asides: make(chan asideRequest),
	}
}

func newMetrics(o Options) *telemetry.Audit {
	var kinds []string
	for _, k := range Kinds() {
		kinds = append(kinds, string(k))
	}
	return telemetry.NewAudit(o.Reg, kinds,
		[]string{lostQueue, lostDisk, lostAway, lostRejected, lostStop})
}

// Admit refuses a dial, in strict mode, while its record cannot be kept.
func (w *Writer) Admit() error {
	if w == nil || !w.strict {
		return nil
	}
	if err := w.also.Admit(); err != nil {
		return err
	}
	f := fault.New(fault.CodeAudit, "dials are refused while no audit record can be kept")
	switch {
	case w.broken.Load():
		return f.Whyf("the records cannot be written").Hint("check %s; the log says more", w.where)
	case w.stopped.Load():
		return f.Whyf("the audit log is closed").Hint("try again")
	case len(w.queue) == cap(w.queue) || w.waiting.Load() >= auditQueueBytes:
		return f.Whyf("too many records are queued").Hint("try again; if it lasts, %s is too slow", w.where)
	}
	return nil
}

// Write queues a record. It never blocks.
func (w *Writer) Write(r Record) {
	if w == nil {
		return
	}
	if r.ID == "" {
		r.ID = w.run + "-" + strconv.FormatInt(w.count.Add(1), 10)
	}
	w.also.Write(r)
	line := Append(nil, r)
	if w.stopped.Load() {
		w.lose(lostStop, 1)
		return
	}
	if w.waiting.Add(int64(len(line))) <= auditQueueBytes {
		select {
		case w.queue <- line:
			w.accepted(r.Kind)
			return
		default:
		}
	}
	w.waiting.Add(-int64(len(line)))
	if w.broken.Load() {
		w.lose(w.down, 1)
		return
	}
	w.lose(lostQueue, 1)
}

func (w *Writer) accepted(k Kind) {
	if !w.second {
		w.metrics.Records.WithLabelValues(string(k)).Inc()
	}
}

// lose counts records that will not be written, and logs that at intervals.
func (w *Writer) lose(reason string, n int64) {
	if n == 0 {
		return
	}
	now := time.Now()
	w.metrics.Lost.WithLabelValues(reason).Add(float64(n))
	total := w.lost.add(n, now)
	last := w.told.Load()
	if now.UnixNano()-last >= int64(limit.AuditTold) && w.told.CompareAndSwap(last, now.UnixNano()) {
		w.log.Error("audit records are lost", "records", total, telemetry.AttrReason, reason, "path", w.where)
	}
}

// While calls fn and writes meanwhile. After fn it writes what is still queued, for
// limit.Shutdown at most, and closes the file.
func (w *Writer) While(ctx context.Context, fn func() error) error {
	if w == nil {
		return fn()
	}
	if w.also != nil {
		alone := fn
		fn = func() error { return w.also.While(ctx, alone) }
	}
	calls, isCalls := w.sink.(*exporting)
	if isCalls {
		calls.ctx, calls.abort = context.WithCancel(context.WithoutCancel(ctx))
	}
	g := run.NewGroup(context.WithoutCancel(ctx))
	g.Do(w.own)
	err := fn()
	w.stopped.Store(true)
	g.Stop()
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit.Shutdown)
	defer cancel()
	if isCalls { // they can be cancelled
		defer run.OnDone(bound, calls.abort)()
		g.Wait()
		return err
	}
	if !g.WaitContext(bound) {
		w.told.Store(0)
		w.lose(lostStop, int64(len(w.queue)))
		w.log.Error("the audit file is abandoned: a write to it does not return", "path", w.where)
	}
	return err
}

// own is the goroutine that writes, until ctx ends and the queue is empty.
func (w *Writer) own(ctx context.Context) {
	tidy := run.NewGroup(ctx)
	defer tidy.Wait()
	defer tidy.Stop()
	tidy.Do(w.sink.Tidy)
	due := time.NewTimer(0)
	defer due.Stop()
	var batch []byte
	for ctx.Err() == nil {
		if at := w.sink.Due(); at.IsZero() {
			due.Stop()
		} else {
			due.Reset(time.Until(at))
		}
		select {
		case line := <-w.queue:
			batch = w.collect(batch[:0], line)
			w.put(ctx, batch)
		case <-due.C:
			w.sink.Rotate()
		case ask := <-w.asides:
			ask.done <- w.turn(ask.aside)
		case <-ctx.Done():
		}
	}
	w.finish(ctx, batch)
}

// finish writes what is left; records that fail now are lost.
func (w *Writer) finish(ctx context.Context, batch []byte) {
	for {
		select {
		case line := <-w.queue:
			w.put(ctx, w.collect(batch[:0], line))
			continue
		default:
		}
		break
	}
	if gap := w.gap(batch[:0]); len(gap) > 0 && !w.broken.Load() {
		w.put(ctx, gap)
	}
	if err := w.sink.Close(); err != nil {
		w.log.Error("the audit log could not be closed cleanly", "path", w.where, telemetry.AttrReason, err)
	}
}

// collect appends the first line and what else is queued, up to a batch. A record
// that counts the records lost before comes first.
func (w *Writer) collect(b, first []byte) []byte {
	if !w.broken.Load() { // otherwise it would be lost too, and count itself
		b = w.gap(b)
	}
	b = append(b, first...)
	w.waiting.Add(-int64(len(first)))
	for len(b) < auditBatch {
		select {
		case line := <-w.queue:
			b = append(b, line...)
			w.waiting.Add(-int64(len(line)))
			continue
		default:
		}
		break
	}
	return b
}

// gap appends a record of the losses since the last one, if there are any.
func (w *Writer) gap(b []byte) []byte {
	n, since := w.lost.take()
	if n == 0 {
		return b
	}
	w.accepted(KindLost)
	id := w.run + "-"
	switch { // with two Writers, both number their common records alike
	case w.also != nil:
		id += "file-" + strconv.FormatInt(w.gaps.Add(1), 10)
	case w.second:
		id += "collector-" + strconv.FormatInt(w.gaps.Add(1), 10)
	default:
		id += strconv.FormatInt(w.count.Add(1), 10)
	}
	return Append(b, Record{ID: id, Kind: KindLost, Time: time.Now(), Count: n, Since: since})
}

// pause is how long to wait after a failure: as the error says, if it does.
func pause(err error) time.Duration {
	var says interface{ Wait() time.Duration }
	if errors.As(err, &says) {
		return max(limit.AuditRetry, says.Wait())
	}
	return limit.AuditRetry
}

// put writes a batch and tries again until it is written or ctx ends.
func (w *Writer) put(ctx context.Context, b []byte) {
	for {
		n, err := w.sink.Write(b)
		if err == nil {
			if w.broken.Swap(false) {
				w.log.Info("audit records are written again", "path", w.where)
			}
			return
		}
		if !w.broken.Swap(true) {
			w.log.Error("audit records cannot be written", "path", w.where, telemetry.AttrReason, err)
		}
		b = b[n:]
		if !run.Wait(ctx, pause(err)) {
			w.lose(lostStop, int64(bytes.Count(b, []byte("\n"))))
			return
		}
	}
}

// losses counts lost records that no record reports yet.
type losses struct {
	mu    sync.Mutex
	n     int64
	since time.Time
}

func (l *losses) add(n int64, now time.Time) (total int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		l.since = now
	}
	l.n += n
	return l.n
}

func (l *losses) take() (n int64, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, since = l.n, l.since
	l.n = 0
	return n, since
}

// stream is a sink without a file: standard output.
type stream struct{ io.Writer }

func (stream) Close() error         { return nil }
func (stream) Due() time.Time       { return time.Time{} }
func (stream) Rotate()              {}
func (stream) Tidy(context.Context) {}
