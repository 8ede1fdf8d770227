// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// readerOf is a reader of a backup that waits for something before it takes anything.
type readerOf func() error

func (r readerOf) Write(b []byte) (int, error) { return len(b), r() }

// TestABackupThatIsNotReadHoldsNobodyUp: the state grows, and is read, while whoever
// asked for a backup takes nothing of it.
func TestABackupThatIsNotReadHoldsNobodyUp(t *testing.T) {
	s, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	g := run.NewGroup(t.Context())
	err = s.Backup(readerOf(func() error {
		g.Go("change", func(context.Context) error {
			for range 200 {
				token, _ := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
				if err := s.PutToken(token, noon()); err != nil {
					return err
				}
			}
			_, err := s.Tokens()
			return err
		})
		bound, cancel := context.WithTimeout(runtest.Within(t), runtest.Patience/2)
		defer cancel()
		if !g.WaitContext(bound) {
			return errors.New("a change waits for the backup's reader")
		}
		return nil
	}))
	if err := errors.Join(err, g.Wait()); err != nil {
		t.Error(err)
	}
}
