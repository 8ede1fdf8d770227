// SPDX-License-Identifier: Apache-2.0

package conf_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// meta is embedded, as TypeMeta is in every kind.
type meta struct {
	Kind string `json:"kind"`
}

type sample struct {
	meta
	Name    string            `json:"name,omitempty"`
	Count   int               `json:"count"`
	Small   int32             `json:"small"`
	On      bool              `json:"on"`
	Wait    v1alpha1.Duration `json:"wait"`
	List    []string          `json:"list"`
	Items   []item            `json:"items"`
	Pointer *item             `json:"pointer"`
	Inner   item              `json:"inner"`
	Ratio   float64           `json:"ratio"`
	Hidden  string            `json:"-"`
	Untold  string
}

type item struct {
	Label string `json:"label"`
	Below *item  `json:"below"`
	v1alpha1.SocketDefaults
}

func TestAGoodFileIsRead(t *testing.T) {
	var got sample
	d := conf.Decode("f.yaml", []byte(`# a comment
kind: Sample
name: "7"
count: -3
on: true
wait: 1m30s
list: [a, "b c"]
items:
  - label: one
    mode: "0660"
  - {label: two, owner: "65532"}
pointer: {label: p, below: {label: q}}
inner:
ratio: ~
`), &got)
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	switch {
	case got.Kind != "Sample", got.Name != "7", got.Count != -3, !got.On, got.Wait.Duration != 90*time.Second,
		strings.Join(got.List, ",") != "a,b c", len(got.Items) != 2, got.Items[0].Mode != "0660", got.Items[1].Owner != "65532",
		got.Pointer == nil, got.Pointer.Below == nil, got.Pointer.Below.Label != "q":
		t.Errorf("read as %+v", got)
	}
}

// TestEveryProblemHasItsPlace lists exactly what is said of a file.
func TestEveryProblemHasItsPlace(t *testing.T) {
	known := "known here: kind, name, count, small, on, wait, list, items, pointer, inner, ratio"
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"an unknown key":               {"nmae: x\n", []string{"f:1:1: nmae: unknown key; did you mean name? " + known}},
		"an unknown key of an item":    {"items:\n- label: a\n  lable: b\n", []string{"f:3:3: items[0].lable: unknown key; did you mean label? known here: label, below, owner, group, mode"}},
		"a key of a hidden field":      {"Hidden: x\n", []string{"f:1:1: Hidden: unknown key; " + known}},
		"a field without a name":       {"Untold: x\n", []string{"f:1:1: Untold: unknown key; " + known}},
		"a key in another case":        {"Name: x\n", []string{"f:1:1: Name: unknown key; did you mean name? " + known}},
		"a duplicate key":              {"name: a\ncount: 1\nname: b\n", []string{"f:3:1: name: the key stands twice"}},
		"a duplicate unknown key":      {"x: 1\nx: 2\n", []string{"f:1:1: x: unknown key; " + known, "f:2:1: x: the key stands twice"}},
		"a number for text":            {"name: 7\n", []string{"f:1:7: name: text is expected; put quotes around 7"}},
		"a mode in bare octal":         {"inner: {mode: 0660}\n", []string{"f:1:15: inner.mode: text is expected; put quotes around 0660"}},
		"a truth value for text":       {"name: true\n", []string{"f:1:7: name: text is expected; put quotes around true"}},
		"a date for text":              {"name: 2026-01-01\n", []string{"f:1:7: name: text is expected; put quotes around 2026-01-01"}},
		"text for a number":            {"count: many\n", []string{`f:1:8: count: a whole number is expected, not "many"`}},
		"a quoted number":              {"count: \"7\"\n", []string{`f:1:8: count: a whole number is expected, not "7"`}},
		"a fraction for a number":      {"count: 1.5\n", []string{`f:1:8: count: a whole number is expected, not "1.5"`}},
		"a number in octal":            {"count: 0o17\n", []string{`f:1:8: count: a whole number is expected, not "0o17"`}},
		"a number that is too large":   {"small: 3000000000\n", []string{`f:1:8: small: a whole number is expected, not "3000000000"`}},
		"yes for true":                 {"on: yes\n", []string{`f:1:5: on: true or false is expected, not "yes"`}},
		"a bad duration":               {"wait: 5 minutes\n", []string{`f:1:7: wait: time: unknown unit " minutes" in duration "5 minutes"`}},
		"a duration without a unit":    {"wait: 30\n", []string{`f:1:7: wait: time: missing unit in duration "30"`}},
		"a list for a duration":        {"wait: [1s]\n", []string{"f:1:7: wait: a single value is expected, not a list"}},
		"a list for text":              {"name: [a]\n", []string{"f:1:7: name: a single value is expected, not a list"}},
		"a mapping for a list":         {"list: {a: b}\n", []string{"f:1:7: list: a list is expected, not a mapping"}},
		"a list with nothing behind":   {"name: a\nlist:\ncount: 1\n", []string{"f:2:1: list: the list is empty: leave the key out, or write what is in it"}},
		"a list that is null":          {"items: ~\ninner: {}\nlist: null\n", []string{"f:1:1: items: the list is empty: leave the key out, or write what is in it", "f:3:1: list: the list is empty: leave the key out, or write what is in it"}},
		"an item with nothing behind":  {"list:\n- a\n-\n", []string{"f:3:2: list[1]: the item is empty: take it away, or write what it is"}},
		"a mapping as an empty item":   {"items: [~]\n", []string{"f:1:9: items[0]: the item is empty: take it away, or write what it is"}},
		"one value for a list":         {"list: a\n", []string{"f:1:7: list: a list is expected, not a single value"}},
		"a list for a mapping":         {"inner: [a]\n", []string{"f:1:8: inner: a mapping is expected, not a list"}},
		"a list at the top":            {"- a\n", []string{"f:1:1: a mapping is expected, not a list"}},
		"one word at the top":          {"hello\n", []string{"f:1:1: a mapping is expected, not a single value"}},
		"a number among texts":         {"list: [a, 2, b, 4]\n", []string{"f:1:11: list[1]: text is expected; put quotes around 2", "f:1:17: list[3]: text is expected; put quotes around 4"}},
		"an anchor":                    {"name: &a x\n", []string{"f:1:7: name: anchors and aliases are not accepted"}},
		"an anchor and its alias":      {"inner: &a {label: x}\npointer: *a\n", []string{"f:1:8: inner: anchors and aliases are not accepted", "f:2:10: pointer: anchors and aliases are not accepted"}},
		"an anchor at the top":         {"&a\nname: x\n", []string{"f:1:1: anchors and aliases are not accepted"}},
		"an anchor on a key":           {"&a name: x\n", []string{"f:1:1: name: anchors and aliases are not accepted"}},
		"a merge key":                  {"inner:\n  <<: {label: x}\n", []string{"f:2:3: inner.<<: unknown key; known here: label, below, owner, group, mode"}},
		"a mapping as a key":           {"{a: b}: c\n", []string{"f:1:1: a key must be a single word"}},
		"a tag of one's own":           {"name: !mine x\n", []string{"f:1:7: name: the tag !mine is not accepted"}},
		"a tag on a duration":          {"wait: !mine 5s\n", []string{"f:1:7: wait: the tag !mine is not accepted"}},
		"bytes for text":               {"name: !!binary aGk=\n", []string{"f:1:7: name: text is expected; put quotes around aGk="}},
		"a kind that cannot be read":   {"ratio: 1.5\n", []string{"f:1:8: ratio: fields of kind float64 cannot be read"}},
		"a second document":            {"name: a\n---\nname: b\n", []string{"f:2:1: a second document; one is expected"}},
		"a second document, broken":    {"name: a\n---\n{\n", []string{"f:3:1: did not find expected node content"}},
		"an empty file":                {"", []string{"f:1:1: the file is empty"}},
		"comments alone":               {"# nothing\n\n", []string{"f:1:1: the file is empty"}},
		"a tab":                        {"inner:\n\tlabel: x\n", []string{"f:2:1: found character that cannot start any token"}},
		"a quote that is not closed":   {"name: a\ninner: \"x\n", []string{"f:2:1: found unexpected end of stream"}},
		"a bracket that is not closed": {"name: a\nlist: [a\ncount: 2\n", []string{"f:2:1: did not find expected ',' or ']'"}},
		"a wrong indentation":          {"inner:\n  label: a\n below: b\n", []string{"f:3:1: did not find expected key"}},
		"a stray item":                 {"- a\nb: c\n", []string{"f:2:1: did not find expected '-' indicator"}},
		"control characters":           {"name: \x01\n", []string{"f:1:1: control characters are not allowed"}},
		"bytes that are no UTF-8":      {"name: \xff\xfe\n", []string{"f:1:1: invalid leading UTF-8 octet"}},
		"several at once, in the order of the file": {"nmae: x\ncount: many\nwait: soon\nlist: [1]\n", []string{
			"f:1:1: nmae: unknown key; did you mean name? " + known,
			`f:2:8: count: a whole number is expected, not "many"`,
			`f:3:7: wait: time: invalid duration "soon"`,
			"f:4:8: list[0]: text is expected; put quotes around 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := conf.Decode("f", []byte(c.file), &sample{})
			var got []string
			for _, p := range d.Problems() {
				got = append(got, p.String())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("said\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
			if f := fault.From(d.Err()); f == nil || f.Code != fault.CodeConfig || f.Next == "" {
				t.Fatalf("%v", d.Err())
			}
			for _, line := range c.want {
				if !strings.Contains(d.Err().Error(), line) {
					t.Errorf("the error does not show %q", line)
				}
			}
		})
	}
}

func TestHostileSizes(t *testing.T) {
	t.Run("a file that is too large is not parsed", func(t *testing.T) {
		d := conf.Decode("f", make([]byte, limit.ConfigFile+1), &sample{})
		if p := d.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "at most 4194304") {
			t.Errorf("%v", p)
		}
	})
	t.Run("nesting has an end", func(t *testing.T) {
		const levels = 40
		var b strings.Builder
		b.WriteString("pointer: ")
		b.WriteString(strings.Repeat("{below: ", levels))
		b.WriteString("~" + strings.Repeat("}", levels))
		p := conf.Decode("f", []byte(b.String()), &sample{}).Problems()
		if len(p) != 1 || p[0].Message != "nested deeper than 32 levels" || p[0].Column == 0 || !strings.HasPrefix(p[0].Path, "pointer.below.below") {
			t.Errorf("%v", p)
		}
	})
	t.Run("nesting that the parser itself refuses", func(t *testing.T) {
		if err := conf.Decode("f", []byte(strings.Repeat("[", 1_000_000)), &sample{}).Err(); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a hundred thousand problems are counted, not listed", func(t *testing.T) {
		var b strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&b, "k%d: 1\n", i)
		}
		d := conf.Decode("f", []byte(b.String()), &sample{})
		if n := len(d.Problems()); n != 100 {
			t.Errorf("%d are listed", n)
		}
		if text := d.Err().Error(); !strings.HasSuffix(text, "and 99900 more") || len(text) > 32<<10 {
			t.Errorf("%d bytes, ending in %q", len(text), text[len(text)-40:])
		}
	})
	t.Run("aliases cannot blow up", func(t *testing.T) {
		bomb := "name: &a [x,x,x,x,x,x,x,x,x]\nlist: &b [*a,*a,*a,*a,*a,*a,*a]\nitems: [*b,*b,*b,*b,*b,*b]\n"
		if err := conf.Decode("f", []byte(bomb), &sample{}).Err(); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("%v", err)
		}
	})
}

func TestProblemsOfMeaningFindTheirPlace(t *testing.T) {
	d := conf.Decode("f", []byte("kind: x\nitems:\n- label: a\n- label: b\n"), &sample{})
	for path, want := range map[string]string{
		"items[1].label": "f:4:10: items[1].label: wrong",
		"items[1].mode":  "f:4:3: items[1].mode: wrong",
		"items[7].label": "f:3:1: items[7].label: wrong",
		"wait":           "f:1:1: wait: wrong",
		"kind":           "f:1:7: kind: wrong",
		"":               "f:1:1: wrong",
	} {
		d.Add(path, "%s", "wrong")
		found := false
		for _, p := range d.Problems() {
			found = found || p.String() == want
		}
		if !found {
			t.Errorf("%q: %v, want %s", path, d.Problems(), want)
		}
	}
	if p := (conf.Problem{File: "f", Message: "m"}); p.String() != "f: m" {
		t.Errorf("%s", p)
	}
	var clean sample
	if d := conf.Decode("f", []byte("kind: x"), &clean); d.Err() != nil || len(d.Problems()) != 0 {
		t.Errorf("%v", d.Err())
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"kind: x\nitems: [{label: a}]\n", "a: &b c\nd: *b\n", "? [a]\n: b\n", "name: !!binary x\n", "<<: {a: b}\n", "---\n---\n", "%YAML 1.1\n---\nwait: 1s\n", "{"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var hub v1alpha1.HubConfig
		for _, into := range []any{&sample{}, &hub, &v1alpha1.AgentConfig{}} {
			d := conf.Decode("f", data, into)
			if (d.Err() == nil) != (len(d.Problems()) == 0) {
				t.Errorf("%v with %d problems", d.Err(), len(d.Problems()))
			}
			for _, p := range d.Problems() {
				if p.Message == "" || p.Line < 0 || p.Column < 0 {
					t.Errorf("%+v", p)
				}
			}
			d.Add("clusters[3].sockets[1].path", "a path that is not there")
		}
	})
}

// TestWhatCannotBeReadIsLeftOut: so that nobody judges a value that the file does
// not hold, and 0 is told from nothing.
func TestWhatCannotBeReadIsLeftOut(t *testing.T) {
	for file, want := range map[string]string{"": "none", "number:": "none", "number: ~": "none", "number: many": "none", "number: 0": "0", "number: -1": "-1"} {
		var got struct {
			meta
			Number *int `json:"number"`
		}
		conf.Decode("f", []byte("kind: x\n"+file+"\n"), &got)
		read := "none"
		if got.Number != nil {
			read = fmt.Sprint(*got.Number)
		}
		if read != want {
			t.Errorf("%q is read as %s, want %s", file, read, want)
		}
	}
}
