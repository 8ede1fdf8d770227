// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Nodes reads a file of several YAML documents, for a caller that looks at each one before it decodes it with
// DecodeNode. Empty documents are left out. The Document has what is wrong with the syntax.
func Nodes(file string, data []byte) ([]*yaml.Node, *Document) {
	d := &Document{file: file, places: map[string]place{"": {1, 1}}}
	var out []*yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		switch {
		case errors.Is(err, io.EOF):
			return out, d
		case err != nil:
			d.syntax(err, data)
			return nil, d
		case len(n.Content) > 0 && n.Content[0].Tag != "!!null":
			out = append(out, n.Content[0])
		}
	}
}

// DecodeNode is Decode for a part of a file; its paths begin there.
func DecodeNode(file string, n *yaml.Node, into any) *Document {
	d := &Document{file: file, places: map[string]place{"": {n.Line, n.Column}}}
	d.value("", n, reflect.ValueOf(into).Elem(), 0)
	return d
}

// mapping decodes keys that the file chooses, in the form of text. The path of each is path[key].
func (d *Document) mapping(path string, n *yaml.Node, v reflect.Value, depth int) {
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Content)/2))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		at := fmt.Sprintf("%s[%s]", path, key.Value)
		if _, twice := d.places[at]; twice {
			d.report(place{key.Line, key.Column}, at, "the key stands twice")
			continue
		}
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Tag != "!!str" {
			d.report(place{key.Line, key.Column}, path, "a key must be text; put quotes around it")
			continue
		}
		to := reflect.New(v.Type().Elem()).Elem()
		d.item(at, item, to, depth+1)
		v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), to)
	}
}
