// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// FuzzReadSnapshot reads anything as a snapshot. It is refused, or what it holds
// is what is written again, byte by byte.
func FuzzReadSnapshot(f *testing.F) {
	f.Add(saved(f).files[snapshotName].content)
	f.Fuzz(func(t *testing.T, data []byte) {
		var all []kept
		if readSnapshot(bytes.NewReader(data), func(k kept) { all = append(all, k) }) != nil {
			return
		}
		var out bytes.Buffer
		w := newSnapshotWriter(&out)
		for _, k := range all {
			w.add(k)
		}
		if err := w.Close(); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%v, %d bytes became %d", err, len(data), out.Len())
		}
	})
}

// FuzzParseKept reads anything as the body of a record, which a fuzzer seldom
// reaches through the sums around it.
func FuzzParseKept(f *testing.F) {
	for _, by := range []string{"192.0.2.1", "2001:db8::"} {
		f.Add(kept{place: member("a", "b"), left: 1, by: netip.MustParseAddr(by)}.append(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		k, ok := parseKept(data)
		if !ok {
			return
		}
		if again := k.append(nil); !bytes.Equal(again, data) {
			t.Errorf("%x became %x", data, again)
		}
		now := time.Now()
		l := k.at(now)
		if left := l.Expires.Sub(now); left <= 0 || left > limit.DiscoveryTTL || len(l.Endpoints) != len(k.lefts) {
			t.Errorf("%v is left", left)
		}
	})
}
