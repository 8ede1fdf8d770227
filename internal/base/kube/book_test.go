// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func begin() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// raw is an object: its name, its renewal and its lease.
func raw(name, renewed string, lease int, written time.Time) json.RawMessage {
	spec := "{}"
	if lease > 0 {
		spec = fmt.Sprintf(`{"renewTime":%q,"leaseSeconds":%d}`, renewed, lease)
	}
	return json.RawMessage(fmt.Sprintf(`{"metadata":{"name":%q,"generation":3,"managedFields":[{"time":%q},{"time":"2001-01-01T00:00:00Z"}]},"spec":%s}`,
		name, written.Format(time.RFC3339), spec))
}

// TestBook: what lists and events do to what is known, second by second.
func TestBook(t *testing.T) {
	type step struct {
		at   int    // seconds
		list string // objects as name:renewal:lease, with commas
		when int    // the API server's clock at the list, in seconds from an hour ago; written is 0
		put  string // an object of an event
		gone string // the name of one
		want string // names with the end of the lease in seconds, of those who live
	}
	for name, steps := range map[string][]step{
		"a lease runs by our clock":            {{0, "a:1:60", 0, "", "", "a:60"}, {59, "", 0, "", "-", "a:60"}, {60, "", 0, "", "-", ""}},
		"a renewal renews":                     {{0, "a:1:60", 0, "", "", "a:60"}, {50, "", 0, "a:2:60", "", "a:110"}},
		"no renewal does not":                  {{0, "a:1:60", 0, "", "", "a:60"}, {50, "", 0, "a:1:60", "", "a:60"}, {70, "", 0, "a:1:60", "", ""}},
		"nor does a list":                      {{0, "a:1:60", 0, "", "", "a:60"}, {50, "a:1:60", 0, "", "", "a:60"}, {70, "a:1:60", 0, "", "", ""}},
		"renewed after its end":                {{0, "a:1:60", 0, "", "", "a:60"}, {90, "", 0, "a:2:60", "", "a:150"}},
		"a shorter lease":                      {{0, "a:1:60", 0, "", "", "a:60"}, {10, "", 0, "a:2:20", "", "a:30"}},
		"age by the server's clock":            {{0, "a:1:60", 25, "", "", "a:35"}, {10, "", 0, "a:2:60", "", "a:70"}},
		"dead before we came":                  {{0, "a:1:60", 100, "", "", ""}, {10, "a:1:60", 110, "", "", ""}, {20, "", 0, "a:2:60", "", "a:80"}},
		"a server's clock that went backwards": {{0, "a:1:60", -500, "", "", "a:60"}},
		"removed":                              {{0, "a:1:60,b:1:60", 0, "", "", "a:60 b:60"}, {1, "", 0, "", "a", "b:60"}},
		"missing in a list":                    {{0, "a:1:60,b:1:60", 0, "", "", "a:60 b:60"}, {1, "b:1:60", 0, "", "", "a:60 b:60"}, {61, "b:2:60", 0, "", "", "b:121"}},
		"missing and back, not renewed":        {{0, "a:1:60", 0, "", "", "a:60"}, {1, "", 0, "", "", "a:60"}, {30, "a:1:60", 0, "", "", "a:60"}},
		"without a lease":                      {{0, "a::0", 0, "", "", "a:-"}, {9999, "a::0", 0, "", "", "a:-"}, {9999, "", 0, "", "", ""}},
		"a lease that comes later":             {{0, "a::0", 0, "", "", "a:-"}, {5, "", 0, "a:1:60", "", "a:65"}},
		"a lease that goes":                    {{0, "a:1:60", 0, "", "", "a:60"}, {5, "", 0, "a::0", "", "a:-"}},
		"bad, and good again":                  {{0, "a:1:60", 0, "", "", "a:60"}, {5, "", 0, "a:1:9999", "", ""}, {6, "", 0, "a:2:60", "", "a:66"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, read := newBook(), readMember("m")
			for i, s := range steps {
				now := begin().Add(time.Duration(s.at) * time.Second)
				clock := begin().Add(-time.Hour)
				object := func(text string) object {
					f := strings.Split(text, ":")
					var lease int
					if _, err := fmt.Sscan(f[2], &lease); err != nil {
						t.Fatal(err)
					}
					return read(now, raw(f[0], f[1], lease, clock))
				}
				switch {
				case s.put != "":
					_ = b.put(now, time.Time{}, object(s.put)) // a bad one is wanted
				case s.gone != "":
					b.remove(s.gone)
				default:
					l := listing{when: clock.Add(time.Duration(s.when) * time.Second)}
					for _, text := range strings.FieldsFunc(s.list, func(r rune) bool { return r == ',' }) {
						l.items = append(l.items, object(text))
					}
					b.listed(now, l)
				}
				var got []string
				left, _ := roster.Expire(now, b.said())
				for _, said := range left {
					end := "-"
					if !said.Until.IsZero() {
						end = fmt.Sprint(int(said.Until.Sub(begin()) / time.Second))
					}
					got = append(got, said.Facts.ID+":"+end)
				}
				if text := strings.Join(got, " "); text != s.want {
					t.Fatalf("step %d: %q live, not %q", i+1, text, s.want)
				}
			}
		})
	}
}

// TestBookIsBounded: nobody makes us keep more, and those who are known stay.
func TestBookIsBounded(t *testing.T) {
	b, read := newBook(), readMember("m")
	for i := range kubeObjects {
		if err := b.put(begin(), time.Time{}, read(begin(), raw(fmt.Sprint("n", i), "1", 60, begin()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.put(begin(), time.Time{}, read(begin(), raw("more", "1", 60, begin()))); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("one more: %v", err)
	}
	if err := b.put(begin(), time.Time{}, read(begin(), raw("n7", "2", 60, begin()))); err != nil {
		t.Errorf("one that is known: %v", err)
	}
	if n, states, bad := b.count(); n != kubeObjects || states != n || bad != 0 {
		t.Errorf("%d are known, %d say something, %d are bad", n, states, bad)
	}
}

func TestRetry(t *testing.T) {
	away := fault.New(fault.CodeKubeAway, "x")
	denied := refusal(call{}, http.StatusForbidden, "no")
	for n, top := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 5: 32 * time.Second, 6: time.Minute, 7: time.Minute, 8: time.Minute, 1 << 40: time.Minute} {
		if low, high := retry(away, n, 0), retry(away, n, 0.999999); low != top/2 || high >= top || high < top*9/10 {
			t.Errorf("try %d: %v to %v, not up to %v", n, low, high, top)
		}
	}
	if d := retry(denied, 1, 0); d > 2*time.Second {
		t.Errorf("a second refusal: %v", d)
	}
	if low, high := retry(denied, 5, 0), retry(denied, 5, 0.999); low != kubeRetryDenied || high > 2*kubeRetryDenied {
		t.Errorf("later refusals: %v to %v", low, high)
	}
}

// TestTriesOfOneKind: who could not reach the API server before has not been refused by it yet.
func TestTriesOfOneKind(t *testing.T) {
	away, no := fault.New(fault.CodeKubeAway, "x"), refusal(call{}, http.StatusForbidden, "no")
	var failed tries
	for i, c := range []struct {
		err  error
		want int
	}{{away, 0}, {away, 1}, {nil, 2}, {away, 3}, {no, 0}, {no, 1}, {refusal(call{}, http.StatusNotFound, "none"), 2}, {away, 0}, {no, 0}} {
		if n := failed.next(c.err); n != c.want {
			t.Errorf("failure %d is number %d, want %d", i, n, c.want)
		}
	}
}

// TestRefusals: each answer has its code, and the server's own words fit a line.
func TestRefusals(t *testing.T) {
	for status, code := range map[int]fault.Code{
		401: fault.CodeKubeDenied, 403: fault.CodeKubeDenied, 404: fault.CodeNotFound, 422: fault.CodeAnnotation,
		410: fault.CodeKubeAway, 429: fault.CodeKubeAway, 500: fault.CodeKubeAway, 302: fault.CodeKubeAway, 0: fault.CodeKubeAway,
	} {
		err := refusal(call{method: "GET", path: "/x"}, status, "a\nb\x1b[2J"+strings.Repeat("ü", kubeMessage))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Code != code || Answered(err) != status || f.Next == "" {
			t.Errorf("%d: %v", status, err)
		}
		if text := f.Explain(); strings.ContainsAny(text, "\n\x1b") || len(text) > 2*kubeMessage || strings.ContainsRune(text, '\uFFFD') {
			t.Errorf("%d: %q", status, text)
		}
	}
}

// FuzzObject: whatever an API server gives, it is read alike twice, keeps the bounds,
// and leaves what is known of others.
func FuzzObject(f *testing.F) {
	f.Add([]byte(raw("a", "1", 60, begin())))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func(time.Time, json.RawMessage) object{readMember("m"), readNode("n")} {
			o, again := read(begin(), data), read(begin(), data)
			if fmt.Sprint(o.err, o.said, o.states, o.lease, o.renewed, o.written) != fmt.Sprint(again.err, again.said, again.states, again.lease, again.renewed, again.written) {
				t.Fatalf("read twice: %v and %v", o, again)
			}
			if o.err != nil && (o.states || !fault.Has(o.err, fault.CodeAnnotation)) {
				t.Errorf("half applied, or without its code: %v", o.err)
			}
			if o.lease < 0 || o.lease > limit.DiscoveryTTL {
				t.Errorf("a lease of %v", o.lease)
			}
			if o.name == "other" {
				return
			}
			b := newBook()
			if err := b.put(begin(), time.Time{}, readMember("m")(begin(), raw("other", "1", 60, begin()))); err != nil {
				t.Fatal(err)
			}
			_ = b.put(begin(), begin(), o) // a bad one is as good here
			b.listed(begin(), listing{items: []object{o}})
			if w, there := b.known["other"]; !there || !w.states {
				t.Error("another one is gone")
			}
		}
	})
}
