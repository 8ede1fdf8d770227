// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// FuzzOverlayFile: whatever stands in the file, the addresses that come of it are in the
// cluster's prefix and in the pool, and what is written of them reads the same.
func FuzzOverlayFile(f *testing.F) {
	clusters := []string{"c"}
	c := choice{clusters: clusters, derived: member.Overlay6("c"), pool: netip.MustParsePrefix("100.112.0.0/12")}
	now := time.Unix(1_800_000_000, 0).UTC()
	text, err := json.Marshal(overlay{ID: "n"}.choose(c, now))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte(`{"clusters":["other"],"id":"n"}`))
	f.Add([]byte(`{"clusters":["c"],"id":"n","gave":{"id":"m"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		was, err := parseOverlay(text, "n", clusters)
		if err != nil {
			was = overlay{ID: "n"}
		}
		got := was.choose(c, now)
		if !member.IsOverlay6(got.Prefix) || !got.Prefix.Contains(got.Six) || got.Six.Zone() != "" || !c.pool.Contains(got.Four) || got.ID != "n" || !reflect.DeepEqual(got.Clusters, clusters) {
			t.Fatalf("%q gives %+v", text, got)
		}
		if again := got.choose(c, now); !again.sameAddresses(got) {
			t.Errorf("chosen again it is %+v, and was %+v", again, got)
		}
		out, err := json.Marshal(got)
		if err != nil {
			t.Fatalf("%q gives what cannot be written: %v", text, err)
		}
		if again, err := parseOverlay(out, "n", clusters); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s reads as %+v", out, again)
		}
	})
}

// FuzzKeyFile: a file of a key is one, which reads the same again, or is refused with
// what to do, and nothing of what stands there is told.
func FuzzKeyFile(f *testing.F) {
	raw := [32]byte{8, 31: 64}
	f.Add(encodeSeed(raw[:]))
	f.Add([]byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"))
	f.Add([]byte("  CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\n"))
	f.Add([]byte("CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB=\n")) // bits beyond the 32 bytes
	f.Fuzz(func(t *testing.T, text []byte) {
		raw, err := parseSeed("the-file", text)
		if err != nil {
			got := fault.From(err)
			if got.Code != fault.CodeStateCorrupt || got.Next == "" || !strings.Contains(got.Explain(), "the-file") {
				t.Errorf("refused with %v", err)
			}
			if line := strings.TrimSpace(string(text)); len(line) > 30 && strings.Contains(got.Explain(), line) {
				t.Errorf("the refusal tells what stands there: %s", got.Explain())
			}
			return
		}
		again, err := parseSeed("the-file", encodeSeed(raw[:]))
		if err != nil || again != raw {
			t.Errorf("%x is written as what reads as %x, %v", raw, again, err)
		}
		if k, err := newKey(raw); err != nil || k.isZero() || k.raw != raw {
			t.Errorf("%x makes the key %v, %v", raw, k, err)
		}
		if c, err := newCertificate(raw); err != nil || c.pin.IsZero() || !bytes.Equal(c.signer.Get().Seed(), raw[:]) {
			t.Errorf("%x makes a certificate with the pin %v, %v", raw, c.pin, err)
		}
	})
}
