// SPDX-License-Identifier: Apache-2.0

package reqmeta_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceparent(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []string
		want string
	}{
		{"none", nil, ""},
		{"as it should be", []string{parent}, parent},
		{"blanks around it", []string{" \t" + parent + " "}, parent},
		{"unknown flags", []string{parent[:53] + "ff"}, parent[:53] + "ff"},
		{"twice", []string{parent, parent}, ""},
		{"a later version", []string{"cc" + parent[2:]}, parent},
		{"a later version with more", []string{"cc" + parent[2:] + "-what-else"}, parent},
		{"a later version with more, not separated", []string{"cc" + parent[2:] + ".what"}, ""},
		{"version 00 with more", []string{parent + "-what"}, ""},
		{"version ff", []string{"ff" + parent[2:]}, ""},
		{"upper case", []string{strings.ToUpper(parent)}, ""},
		{"trace of zeros", []string{"00-" + strings.Repeat("0", 32) + parent[35:]}, ""},
		{"parent of zeros", []string{parent[:36] + strings.Repeat("0", 16) + "-01"}, ""},
		{"short", []string{parent[:54]}, ""},
		{"no hex", []string{"00-" + strings.Repeat("g", 32) + parent[35:]}, ""},
		{"other separators", []string{strings.ReplaceAll(parent, "-", "_")}, ""},
		{"empty", []string{""}, ""},
		{"a line more", []string{parent + "\r\nx: y"}, ""},
	} {
		if got, _ := reqmeta.Trace(c.in, nil); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if reqmeta.TraceID(parent) != "0af7651916cd43dd8448eb211c80319c" || reqmeta.TraceID("x") != "" {
		t.Error("trace ids")
	}
}

func TestTracestate(t *testing.T) {
	long := "k=" + strings.Repeat("v", 200)
	many := make([]string, reqmeta.TraceMembers+1)
	for i := range many {
		many[i] = "k" + strings.Repeat("a", i) + "=v"
	}
	for _, c := range []struct {
		name string
		in   []string
		want string
	}{
		{"none", nil, ""},
		{"one", []string{"rojo=00f067aa0ba902b7"}, "rojo=00f067aa0ba902b7"},
		{"two headers", []string{"a=1", "b=2"}, "a=1,b=2"},
		{"blanks and empty members", []string{" a=1 ,, b=2\t,"}, "a=1,b=2"},
		{"a tenant", []string{"0t@sys=1"}, "0t@sys=1"},
		{"a value with a blank inside", []string{"a=1 2"}, "a=1 2"},
		{"twice the same key", []string{"a=1,a=2"}, ""},
		{"no value", []string{"a=1,b"}, ""},
		{"empty value", []string{"a="}, ""},
		{"upper case key", []string{"A=1"}, ""},
		{"key begins with a digit", []string{"1a=1"}, ""},
		{"a long system", []string{"t@" + strings.Repeat("s", 15) + "=1"}, ""},
		{"= in a value", []string{"a=1=2"}, ""},
		{"not ASCII", []string{"a=ü"}, ""},
		{"too many", []string{strings.Join(many, ",")}, ""},
		{"a long member gives way", []string{"a=1," + long + ",b=" + strings.Repeat("w", 126) + ",c=" + strings.Repeat("w", 126) + ",d=" + strings.Repeat("w", 126)},
			"a=1,b=" + strings.Repeat("w", 126) + ",c=" + strings.Repeat("w", 126) + ",d=" + strings.Repeat("w", 126)},
	} {
		if _, got := reqmeta.Trace([]string{parent}, c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if _, state := reqmeta.Trace([]string{"nonsense"}, []string{"a=1"}); state != "" {
		t.Errorf("a tracestate without its traceparent: %q", state)
	}
}

func TestMetadataInAHeader(t *testing.T) {
	header := func(lines ...string) http.Header {
		h := http.Header{}
		for _, l := range lines {
			h.Add(reqmeta.HeaderMetadata, l)
		}
		return h
	}
	nine := make([]string, limit.AuditPairs+1)
	for i := range nine {
		nine[i] = "k" + string(rune('a'+i)) + "=v"
	}
	for name, h := range map[string]http.Header{
		"no =": header("purpose"), "no key": header("=x"), "a blank in the key": header("a b=c"), "key not ASCII": header("ü=c"),
		"long key": header(strings.Repeat("k", limit.AuditKey+1) + "=v"), "long value": header("k=" + strings.Repeat("v", limit.AuditValue+1)),
		"line end": header("k=a%0Ab"), "escape": header("k=%1b[31m"), "no UTF-8": header("k=%ff"), "half a percent": header("k=%4"),
		"twice": header("k=a", "k=b"), "too many": header(nine...),
	} {
		if r, err := reqmeta.Read(h); err == nil {
			t.Errorf("%s is taken: %v", name, r)
		} else if strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 200 {
			t.Errorf("%s: the error is %q", name, err)
		}
	}
	got, err := reqmeta.Read(header("ticket=OPS-1", "who=J%C3%B6rg%20M%C3%BCller", "empty="))
	want := []reqmeta.Pair{{"ticket", "OPS-1"}, {"who", "Jörg Müller"}, {"empty", ""}}
	if err != nil || !slices.Equal(got.Pairs, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pairs := rapid.MapOfN(rapid.StringMatching(`[a-zA-Z0-9._/-]{1,64}`), rapid.String(), 0, limit.AuditPairs).Draw(t, "pairs")
		want := reqmeta.Metadata{Trace: parent, State: "a=1"}
		for _, k := range slices.Sorted(maps.Keys(pairs)) {
			want.Pairs = append(want.Pairs, reqmeta.Pair{Key: k, Value: pairs[k]})
		}
		if reqmeta.Check(want.Pairs) != nil {
			want.Pairs = reqmeta.Bounded(want.Pairs)
		}
		h := http.Header{}
		want.Write(h.Add)
		got, err := reqmeta.Read(h)
		if err != nil || got.Trace != want.Trace || got.State != want.State || !slices.Equal(got.Pairs, want.Pairs) {
			t.Fatalf("%v became %v, %v", want, got, err)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add(parent, "a=1,b=2", "k=v%20w", "x=y")
	f.Add("cc"+parent[2:]+"-x", "t@s=1", "=", "%")
	f.Fuzz(func(t *testing.T, trace, state, one, two string) {
		r, err := reqmeta.Read(http.Header{reqmeta.HeaderTraceparent: {trace}, reqmeta.HeaderTracestate: {state}, reqmeta.HeaderMetadata: {one, two}})
		if err != nil {
			return
		}
		if r.Trace != "" && !reqmeta.IsTraceparent(r.Trace) || r.Trace == "" && r.State != "" || len(r.State) > reqmeta.TraceState {
			t.Fatalf("%q %q", r.Trace, r.State)
		}
		h := http.Header{}
		r.Write(h.Add)
		if again, err := reqmeta.Read(h); err != nil || again.Trace != r.Trace || again.State != r.State || !slices.Equal(again.Pairs, r.Pairs) {
			t.Fatalf("%v became %v, %v", r, again, err)
		}
	})
}
