// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
)

func named(n int) kernel.Names {
	return kernel.Names{Link: fmt.Sprintf("l%d", n), Filter: fmt.Sprintf("f%d", n), Table: 1000 + n, Protocol: kernel.Protocol}
}

const me, another = "aaaaaaaaaaaa", "bbbbbbbbbbbb"

func TestFormer(t *testing.T) {
	claim := func(owner string, filter, table, link int) plan.Claim {
		c := plan.Claim{Filter: named(filter).Filter, Owner: owner}
		if table > 0 {
			c.Table, c.Link = named(table).Table, named(link).Link
		}
		return c
	}
	left := func(filter, table, link int) kernel.Names {
		n := kernel.Names{Protocol: kernel.Protocol, Former: true}
		if filter > 0 {
			n.Filter = named(filter).Filter
		}
		if table > 0 {
			n.Table = named(table).Table
		}
		if link > 0 {
			n.Link = named(link).Link
		}
		return n
	}
	mixed := named(2)
	mixed.Filter = named(1).Filter
	for name, c := range map[string]struct {
		before []kernel.Names
		now    kernel.Names
		claims []plan.Claim
		want   []kernel.Names
	}{
		"the first start":                  {nil, named(1), nil, nil},
		"the same names":                   {[]kernel.Names{named(1)}, named(1), []plan.Claim{claim(me, 1, 1, 1)}, nil},
		"others":                           {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim(me, 1, 1, 1)}, []kernel.Names{left(1, 1, 1)}},
		"others, twice":                    {[]kernel.Names{named(1), named(2)}, named(3), []plan.Claim{claim(me, 1, 1, 1), claim(me, 2, 2, 2)}, []kernel.Names{left(1, 1, 1), left(2, 2, 2)}},
		"back again":                       {[]kernel.Names{named(1), named(2)}, named(1), []plan.Claim{claim(me, 1, 1, 1), claim(me, 2, 2, 2)}, []kernel.Names{left(2, 2, 2)}},
		"the link and the table of routes": {[]kernel.Names{mixed}, named(1), []plan.Claim{claim(me, 1, 2, 2)}, []kernel.Names{left(0, 2, 2)}},
		"the table of nftables":            {[]kernel.Names{named(2)}, mixed, []plan.Claim{claim(me, 2, 2, 2)}, []kernel.Names{left(2, 0, 0)}},
		"no table is there":                {[]kernel.Names{named(1)}, named(2), nil, []kernel.Names{left(0, 1, 1)}},
		"beside another mesh":              {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim(me, 1, 1, 1), claim(another, 3, 3, 3)}, []kernel.Names{left(1, 1, 1)}},
		"another mesh has them all":        {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim(another, 1, 1, 1)}, nil},
		"another mesh takes them over now": {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim(me, 1, 1, 1), claim(another, 1, 1, 1)}, nil},
		"another mesh has the table":       {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim(me, 1, 1, 1), claim(another, 3, 1, 3)}, []kernel.Names{left(1, 0, 1)}},
		"another mesh has the link":        {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim(me, 1, 1, 1), claim(another, 3, 3, 1)}, []kernel.Names{left(1, 1, 0)}},
		"another mesh has the filter":      {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim(another, 1, 3, 3)}, []kernel.Names{left(0, 1, 1)}},
		"one that says nothing has them":   {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim("", 1, 0, 0)}, nil},
		"one that says nothing is there":   {[]kernel.Names{named(1)}, named(2), []plan.Claim{claim(me, 1, 1, 1), claim("", 3, 0, 0)}, []kernel.Names{left(1, 1, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			a := Applied{Owner: me, Names: c.before}
			if got := a.Former(c.now, c.claims); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestStrangeNames(t *testing.T) {
	claims := []plan.Claim{{Filter: named(1).Filter, Owner: another}, {Filter: named(2).Filter, Owner: me}, {Filter: named(3).Filter}}
	for name, c := range map[string]struct {
		before []kernel.Names
		now    kernel.Names
		want   bool
	}{
		"another's":                      {[]kernel.Names{named(9)}, named(1), true},
		"another's, as far as one knows": {nil, named(1), false}, // the state directory may be lost
		"another's, that were ours":      {[]kernel.Names{named(1)}, named(1), false},
		"ours":                           {[]kernel.Names{named(9)}, named(2), false},
		"of one that says nothing":       {[]kernel.Names{named(9)}, named(3), false},
		"nobody's":                       {[]kernel.Names{named(9)}, named(4), false},
	} {
		if err := (Applied{me, c.before}).strange(c.now, claims); fault.Has(err, fault.CodeClash) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAppliedIsBounded(t *testing.T) {
	a := Applied{Owner: me}
	for n := range 3 * meshApplied {
		var forgotten []kernel.Names
		a, forgotten = a.With(named(n))
		if want := n >= meshApplied; (len(forgotten) == 1) != want || want && forgotten[0] != named(n-meshApplied) {
			t.Errorf("%d: forgotten %v", n, forgotten)
		}
		if again, _ := a.With(named(n)); !reflect.DeepEqual(again, a) {
			t.Errorf("twice: %v", again)
		}
		if len(a.Names) > meshApplied || a.Names[len(a.Names)-1] != named(n) {
			t.Errorf("%d: %v", n, a.Names)
		}
	}
	if !a.Others(named(1)) || a.Only(named(1)).Others(named(1)) || len(a.Only().Names) != 0 || a.Only().Owner != me {
		t.Error("others")
	}
}

func TestAppliedOnDisk(t *testing.T) {
	dir := t.TempDir()
	first, err := ReadApplied(dir)
	if err != nil || len(first.Owner) != plan.OwnerDigits || len(first.Names) != 0 {
		t.Fatalf("of nothing: %+v, %v", first, err)
	}
	if other, _ := ReadApplied(dir); other.Owner == first.Owner {
		t.Error("two have one name")
	}
	first, _ = first.With(named(1))
	first, _ = first.With(named(2))
	if err := first.Write(dir); err != nil {
		t.Fatal(err)
	}
	if again, err := ReadApplied(dir); err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("%+v became %+v, %v", first, again, err)
	}
	path := filepath.Join(dir, appliedFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	many := strings.Repeat(`{"link":"a","filter":"b","table":7},`, meshApplied+1)
	for name, c := range map[string]struct {
		text string
		code fault.Code
	}{
		"nothing":               {"", fault.CodeStateCorrupt},
		"half":                  {string(good[:len(good)/2]), fault.CodeStateCorrupt},
		"more":                  {string(good) + "{}", fault.CodeStateCorrupt},
		"no version":            {strings.Replace(string(good), "version", "v", 1), fault.CodeStateCorrupt},
		"a newer version":       {strings.Replace(string(good), `"version":1`, `"version":2`, 1), fault.CodeStateVersion},
		"an owner":              {strings.Replace(string(good), first.Owner, "ABCDEFABCDEF", 1), fault.CodeStateCorrupt},
		"a longer owner":        {strings.Replace(string(good), first.Owner, first.Owner+"00", 1), fault.CodeStateCorrupt},
		"the main table":        {strings.Replace(string(good), "1001", "254", 1), fault.CodeStateCorrupt},
		"no table":              {strings.Replace(string(good), "1001", "0", 1), fault.CodeStateCorrupt},
		"loopback":              {strings.Replace(string(good), `"l1"`, `"lo"`, 1), fault.CodeStateCorrupt},
		"no filter":             {strings.Replace(string(good), `"f1"`, `""`, 1), fault.CodeStateCorrupt},
		"too long a filter":     {strings.Replace(string(good), `"f1"`, `"`+strings.Repeat("f", limit.MeshFilter+1)+`"`, 1), fault.CodeStateCorrupt},
		"more than we remember": {strings.Replace(string(good), `"names":[`, `"names":[`+many, 1), fault.CodeStateCorrupt},
		"more than we read":     {string(good) + strings.Repeat(" ", limit.PrivateFile), fault.CodeStateCorrupt},
	} {
		if c.text == string(good) {
			t.Fatalf("%s: nothing is damaged", name)
		}
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := ReadApplied(dir)
		if f := fault.From(err); f == nil || f.Code != c.code || f.Next == "" {
			t.Errorf("%s: %v", name, err)
		}
		if len(a.Owner) != plan.OwnerDigits || a.Owner == first.Owner || len(a.Names) != 0 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if err := first.Write(filepath.Join(path, "below a file")); !fault.Has(err, fault.CodeStateAccess) {
		t.Errorf("written where nobody can: %v", err)
	}
}
