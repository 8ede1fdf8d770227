// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const long = 10 * time.Minute

func sidero(member string) Place { return Place{Cluster{Sidero, "c"}, member} }

func native(member string) Place { return Place{Cluster{Native, "n"}, member} }

// rawCodec sends bytes that are no message, too.
type rawCodec struct{ codec }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.codec.Marshal(v)
}

// drawn is a watcher's snapshot, where there is room for any.
func drawn(t interface{ Fatal(...any) }, w *Watcher, render func([]Listing) [][]byte) *Rendered {
	r, err := w.Snapshot(render, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ids(all []Listing) (out []string) {
	for _, l := range all {
		out = append(out, l.ID)
	}
	return out
}

func wantIDs(t *testing.T, b *Board, c Cluster, want ...string) {
	t.Helper()
	if got := ids(b.List(c)); !slices.Equal(got, want) {
		t.Fatalf("members %q, want %q", got, want)
	}
}

func wantFault(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !fault.Has(err, code) || fault.From(err).Next == "" {
		t.Fatalf("%v, want %s with a next step", err, code)
	}
}
