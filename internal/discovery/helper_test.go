// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
)

const long = 10 * time.Minute

func sidero(member string) Place { return Place{Cluster{Sidero, "c"}, member} }

func native(member string) Place { return Place{Cluster{Native, "n"}, member} }

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
