// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestBrokenLinesHaveAPlace mixes records with all that is none.
func TestBrokenLinesHaveAPlace(t *testing.T) {
	text := fullLine + // 1
		"\n" + // 2: an empty line is nothing
		"not json\n" + // 3
		fullLine[:50] + "\n" + // 4: torn, and gone on after
		fullLine + // 5
		`{"v":2,"time":"2026-01-01T00:00:00Z","kind":"dial"}` + "\n" + // 6
		`{"time":"2026-01-01T00:00:00Z","kind":"dial"}` + "\n" + // 7
		`{"v":1,"time":"2026-01-01T00:00:00Z","kind":"party"}` + "\n" + // 8
		`{"v":1,"kind":"dial"}` + "\n" + // 9
		strings.Repeat("x", auditLine+1) + "\n" + // 10
		fullLine + // 11
		fullLine[:len(fullLine)-1] // 12: whole but for its end, which is on its way
	r := NewReader("f", strings.NewReader(text))
	var got []string
	n := 0
	for {
		_, err := r.Next()
		var b *Broken
		switch {
		case err == io.EOF:
			want := []int{3, 4, 6, 7, 8, 9, 10}
			for i, line := range want {
				if i >= len(got) || !strings.HasPrefix(got[i], fmt.Sprintf("f:%d: ", line)) {
					t.Fatalf("not line %d in %q", line, got)
				}
			}
			if len(got) != len(want) || n != 4 {
				t.Errorf("%d records, %q", n, got)
			}
			return
		case errors.As(err, &b):
			if b.Torn {
				t.Errorf("%v counts as the torn end", b)
			}
			got = append(got, b.Error())
		case err != nil:
			t.Fatal(err)
		default:
			n++
		}
	}
}

// TestEveryCutIsFound cuts a record after each byte.
func TestEveryCutIsFound(t *testing.T) {
	for n := 1; n < len(fullLine)-1; n++ {
		r := NewReader("f", strings.NewReader(fullLine+fullLine[:n]))
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		_, err := r.Next()
		var b *Broken
		if !errors.As(err, &b) || !b.Torn || b.Line != 2 {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatal(err)
		}
	}
}

// TestAPackedFileThatIsCut gives what can be read of it.
func TestAPackedFileThatIsCut(t *testing.T) {
	path := config(t).Path + ".000001.gz"
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for range 1000 {
		if _, err := z.Write([]byte(fullLine)); err != nil {
			t.Fatal(err)
		}
		z.Flush()
	}
	if err := os.WriteFile(path, out.Bytes()[:out.Len()/2], 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r := NewReader(path, in)
	for n := 0; ; n++ {
		_, err := r.Next()
		var b *Broken
		if err == nil || errors.As(err, &b) && b.Torn {
			continue
		}
		if n < 400 || err == io.EOF || !strings.Contains(err.Error(), path+", after line ") {
			t.Errorf("after %d records: %v", n, err)
		}
		return
	}
}

func TestWhatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/x.gz", []byte("no gzip"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/none", dir + "/none.gz", dir + "/x.gz"} {
		if _, err := Open(path); !fault.Has(err, fault.CodeUsage) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Files(dir + "/none/x"); !fault.Has(err, fault.CodeUsage) {
		t.Error(err)
	}
}

func TestFilters(t *testing.T) {
	r := full()
	r.Verdict = Deny
	lost := Record{Kind: KindLost, Time: r.Time, Count: 1}
	for name, c := range map[string]struct {
		f          Filter
		match, gap bool
	}{
		"nothing asked":            {Filter{}, true, true},
		"the cluster":              {Filter{Cluster: "c1"}, true, true},
		"another cluster":          {Filter{Cluster: "c2"}, false, true},
		"a pattern":                {Filter{Caller: "unix:c1/*"}, true, true},
		"a pattern in the middle":  {Filter{Caller: "unix:*/connect"}, true, true},
		"a pattern for another":    {Filter{Caller: "spiffe://*"}, false, true},
		"overlapping ends":         {Filter{Rule: "databases*databases"}, false, true},
		"the agent":                {Filter{Agent: "agent-1"}, true, true},
		"the rule":                 {Filter{Rule: "data*"}, true, true},
		"the code":                 {Filter{Code: "stream_reset"}, true, true},
		"another code":             {Filter{Code: "ok"}, false, true},
		"denied":                   {Filter{Denied: true}, true, true},
		"since then":               {Filter{Since: r.Time}, true, true},
		"since later":              {Filter{Since: r.Time.Add(1)}, false, false},
		"until then":               {Filter{Until: r.Time}, false, false},
		"until later":              {Filter{Until: r.Time.Add(1)}, true, true},
		"all of them but one":      {Filter{Cluster: "c1", Agent: "agent-1", Code: "no_agent"}, false, true},
		"denied, and in that time": {Filter{Denied: true, Since: r.Time, Until: r.Time.Add(1)}, true, true},
	} {
		if c.f.Match(r) != c.match || c.f.Match(lost) != c.gap {
			t.Errorf("%s: %v, lost records %v", name, c.f.Match(r), c.f.Match(lost))
		}
	}
	r.Verdict = Allow
	if (Filter{Denied: true}).Match(r) {
		t.Error("what was allowed counts as denied")
	}
}

func TestTargets(t *testing.T) {
	six := full()
	six.Asked, six.Resolved = "[fd00::1]:443", "[fd00::1]:443"
	for text, want := range map[string][2]bool{
		"db.svc": {true, false}, "DB.svc.": {true, false}, "db.svc:5432": {true, false}, "db.svc:443": {false, false}, "db": {false, false},
		"10.0.0.1": {true, false}, "10.0.0.1:5432": {true, false}, "10.0.0.1:1": {false, false}, "10.0.0.0/8": {true, false},
		"11.0.0.0/8": {false, false}, "0.0.0.0/0": {true, false}, "::/0": {false, true}, "fd00::/8": {false, true}, "fd00::1": {false, true},
		"[fd00::1]:443": {false, true}, "::ffff:10.0.0.1": {true, false}, ":443": {false, true}, "": {true, true},
	} {
		target, err := ParseTarget(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got := [2]bool{Filter{Target: target}.Match(full()), Filter{Target: target}.Match(six)}; got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, text := range []string{"a:b:c", "host:", "[::1", "10.0.0.0/8:443", "host/path"} {
		if _, err := ParseTarget(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestFollowing reads what is there, what comes, a line in two pieces, and what
// comes after a rotation.
func TestFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := config(t).Path
		var got []string
		var bad []string
		live := false
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Follow(ctx, path, nil, Listener{
				Take:     func(r Record) error { got = append(got, r.Caller); return nil },
				Broken:   func(b *Broken) error { bad = append(bad, b.Error()); return nil },
				CaughtUp: func() error { live = true; return nil },
			})
		}()
		write := func(text string) {
			t.Helper()
			f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString(text); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want ...string) {
			t.Helper()
			time.Sleep(2 * auditPoll)
			synctest.Wait()
			if !slices.Equal(got, want) {
				t.Fatalf("%v came, not %v", got, want)
			}
		}
		line := func(caller string) string { return string(Append(nil, dial(caller))) }
		expect() // no file yet
		if !live {
			t.Error("it has not caught up with nothing")
		}
		write(line("a"))
		expect("a")
		b := line("b")
		write(b[:20])
		expect("a")
		write(b[20:] + "no record\n" + line("c") + line("torn")[:30])
		expect("a", "b", "c")
		if err := os.Rename(path, path+".000001"); err != nil {
			t.Fatal(err)
		}
		expect("a", "b", "c")
		write(line("d"))
		expect("a", "b", "c", "d")
		if len(bad) != 2 || !strings.HasPrefix(bad[0], path+":3: ") || !strings.HasPrefix(bad[1], path+":5: ") {
			t.Errorf("%q", bad)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		expect("a", "b", "c", "d")
		write(line("e"))
		expect("a", "b", "c", "d", "e")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
