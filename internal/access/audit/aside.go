// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"os"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// asideRequest asks the goroutine that writes.
type asideRequest struct {
	aside bool
	done  chan error // has room for the answer
}

// StepAside leaves the path to another process: what is written from now on goes to the file as a rotated one. This
// process must not write much more, for that file is not rotated again.
func (w *Writer) StepAside(ctx context.Context) error { return w.ask(ctx, true) }

// StepBack undoes StepAside: the other process did not come.
func (w *Writer) StepBack(ctx context.Context) error { return w.ask(ctx, false) }

func (w *Writer) ask(ctx context.Context, aside bool) error {
	if w == nil {
		return nil
	}
	ask := asideRequest{aside, make(chan error, 1)}
	select {
	case w.asides <- ask:
	case <-ctx.Done():
		return run.Ended(ctx)
	}
	return <-ask.done
}

// turn is called by the goroutine that writes.
func (w *Writer) turn(aside bool) error {
	f, ok := w.sink.(*file)
	switch {
	case !ok:
		return nil
	case aside:
		return f.stepAside()
	}
	f.stepBack()
	return nil
}

// path is that of the file which is written.
func (f *file) path() string { return cmp.Or(f.moved, f.cfg.Path) }

// stepAside renames the open file as a rotation does, and goes on with it.
func (f *file) stepAside() error {
	if f.moved != "" {
		return nil
	}
	if err := f.present(); err != nil {
		return err
	}
	next, err := nextName(f.cfg.Path)
	if err == nil {
		err = os.Rename(f.cfg.Path, next)
	}
	if err != nil {
		return err
	}
	f.moved = next
	return nil
}

// stepBack ends with the rotated file; the next write begins a new one.
func (f *file) stepBack() {
	if f.moved == "" {
		return
	}
	f.moved = ""
	if f.f != nil {
		f.shut()
	}
	f.wake()
}
