// SPDX-License-Identifier: Apache-2.0

package conf_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/conf"
)

type chosen struct {
	Map   map[string]string `json:"map"`
	Items map[string]item   `json:"items"`
	SPI   uint32            `json:"spi"`
}

func TestDocumentsAreReadOneByOne(t *testing.T) {
	nodes, d := conf.Nodes("f.yaml", []byte("# head\n---\nmap: {a: b, c: \"\"}\nspi: 4294967295\n---\n---\nitems: {x: {label: y}}\n"))
	if len(nodes) != 2 || d.Err() != nil {
		t.Fatalf("%d documents, %v", len(nodes), d.Err())
	}
	want := []chosen{{Map: map[string]string{"a": "b", "c": ""}, SPI: 1<<32 - 1}, {Items: map[string]item{"x": {Label: "y"}}}}
	for i, n := range nodes {
		var got chosen
		if d := conf.DecodeNode("f.yaml", n, &got); d.Err() != nil || !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%d: %+v, %v", i, got, d.Err())
		}
	}
	if nodes, d := conf.Nodes("f.yaml", []byte("a: 1\n---\nb: [\n")); len(nodes) != 0 || len(d.Problems()) != 1 ||
		!strings.HasPrefix(d.Problems()[0].String(), "f.yaml:3:") {
		t.Errorf("%v, %v", nodes, d.Problems())
	}
	if nodes, d := conf.Nodes("f.yaml", nil); len(nodes) != 0 || d.Err() != nil {
		t.Errorf("of an empty file: %v, %v", nodes, d.Err())
	}
}

func TestMappingsAreStrict(t *testing.T) {
	for text, want := range map[string]string{
		"map: [a]":          "f.yaml:2:6: map: a mapping is expected, not a list",
		"map: {a: 1}":       "f.yaml:2:10: map[a]: text is expected; put quotes around 1",
		"map: {1: a}":       "f.yaml:2:7: map: a key must be text; put quotes around it",
		"map: {a: b, a: c}": "f.yaml:2:13: map[a]: the key stands twice",
		"map: {a: }":        "f.yaml:2:10: map[a]: the item is empty: take it away, or write what it is",
		"map: {a: [b]}":     "f.yaml:2:10: map[a]: a single value is expected, not a list",
		"items: {x: {lable: y}}": "f.yaml:2:13: items[x].lable: unknown key; did you mean label? " +
			"known here: label, below, owner, group, mode",
		"spi: -1":         `f.yaml:2:6: spi: a whole number from 0 to 4294967295 is expected, not "-1"`,
		"spi: 4294967296": `f.yaml:2:6: spi: a whole number from 0 to 4294967295 is expected, not "4294967296"`,
	} {
		nodes, d := conf.Nodes("f.yaml", []byte("\n"+text+"\n"))
		if len(nodes) != 1 {
			t.Fatalf("%s: %v", text, d.Err())
		}
		var got chosen
		if have := fmt.Sprint(conf.DecodeNode("f.yaml", nodes[0], &got).Problems()); have != "["+want+"]" {
			t.Errorf("%s:\n%s\nwant\n%s", text, have, want)
		}
	}
}
