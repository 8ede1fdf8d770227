// SPDX-License-Identifier: Apache-2.0

// Package conf decodes YAML strictly into a struct and reports every problem
// with file:line:column and field path. It knows no role's configuration, only checks
// that are common to all: a role validates the decoded value and reports its problems
// through the Document.
package conf

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// maxDepth bounds nesting, so that a hostile file cannot exhaust the stack.
const maxDepth = 32

// maxProblems bounds the listed problems: nobody reads more at once, and the largest
// file could have a million.
const maxProblems = 100

// Problem is one mistake in a file.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0 without a position
	Path         string // field path such as clusters[0].name
	Message      string
}

// String renders file:line:column: path: message.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Document is a decoded file that knows the position of each field.
type Document struct {
	file     string
	places   map[string]place
	problems []Problem
	unlisted int // problems beyond maxProblems
	unread   bool
}

type place struct{ line, column int }

// Problems lists what is wrong so far, in the order of the file.
func (d *Document) Problems() []Problem {
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Path, b.Path))
	})
	return d.problems
}

// Add reports a problem with the value of the field at path. For a field that the file
// leaves out the position is that of its nearest parent.
func (d *Document) Add(path, format string, args ...any) {
	d.report(d.find(path), path, fmt.Sprintf(format, args...))
}

// Place returns a problem with the field at path, without reporting it.
func (d *Document) Place(path, message string) Problem {
	at := d.find(path)
	return Problem{d.file, at.line, at.column, path, message}
}

func (d *Document) report(at place, path, message string) {
	if len(d.problems) == maxProblems {
		d.unlisted++
		return
	}
	d.problems = append(d.problems, Problem{d.file, at.line, at.column, path, message})
}

func (d *Document) find(path string) place {
	for {
		if p, ok := d.places[path]; ok || path == "" {
			return p
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// Stands reports whether the file has a field at path, with a value or without.
func (d *Document) Stands(path string) bool {
	_, ok := d.places[path]
	return ok
}

// Unlisted is the number of problems that Problems leaves out.
func (d *Document) Unlisted() int { return d.unlisted }

// Unread reports whether nothing of the file could be decoded, so that there is nothing
// to validate: it is empty, too large or not YAML.
func (d *Document) Unread() bool { return d.unread }

// Err is nil if there are no problems, else one fault that lists them all.
func (d *Document) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	lines := make([]string, len(d.problems))
	for i, p := range d.Problems() {
		lines[i] = p.String()
	}
	if d.unlisted > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", d.unlisted))
	}
	return fault.New(fault.CodeConfig, "the configuration has problems").
		Whyf("\n  %s", strings.Join(lines, "\n  ")).
		Hint("correct the lines named; 'tombolo config print' shows a complete example")
}

// Decode decodes exactly one YAML document into the struct that into points to, by its
// json tags. Unknown and duplicate keys, wrong types, aliases and merge keys are
// problems. The value is usable only if the Document has no problems.
func Decode(file string, data []byte, into any) *Document {
	d := &Document{file: file, places: map[string]place{"": {1, 1}}, unread: true}
	if len(data) > limit.ConfigFile {
		d.Add("", "the file has %d bytes, at most %d are read", len(data), limit.ConfigFile)
		return d
	}
	var root yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	if err := dec.Decode(&root); err != nil {
		d.syntax(err, data)
		return d
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		d.report(place{second.Line, second.Column}, "", "a second document; one is expected")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err, data)
	}
	if len(root.Content) == 0 {
		d.Add("", "the file is empty")
		return d
	}
	d.unread = false
	d.value("", root.Content[0], reflect.ValueOf(into).Elem(), 0)
	return d
}

// syntax reports an error of the library, which is "yaml: line N: text" and counts lines
// from 1 if its scanner fails, but from 0 if its parser fails.
func (d *Document) syntax(err error, data []byte) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if num, msg, ok := strings.Cut(rest, ": "); ok {
			if n, e := strconv.Atoi(num); e == nil {
				line, text = n, msg
				if ofParser(msg) {
					line = min(n+1, 1+bytes.Count(bytes.TrimSpace(data), []byte("\n")))
				}
			}
		}
	}
	if text == "EOF" {
		text = "the file is empty"
	}
	d.report(place{line, 1}, "", text)
}

func ofParser(text string) bool {
	for _, what := range []string{"<", "node content", "key", "'-' indicator", "',' or"} {
		if strings.HasPrefix(text, "did not find expected "+what) {
			return true
		}
	}
	return false
}

func (d *Document) value(path string, n *yaml.Node, v reflect.Value, depth int) {
	null := n.Kind == yaml.ScalarNode && n.Tag == "!!null"
	if null && v.Kind() == reflect.Slice {
		// An omitted list often means everybody: that must be written by hand, not
		// happen to a template whose list came out empty. The position is the key's.
		d.Add(path, "the list is empty: leave the key out, or write what is in it")
		return
	}
	d.places[path] = place{n.Line, n.Column}
	if depth > maxDepth {
		d.Add(path, "nested deeper than %d levels", maxDepth)
		return
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.Add(path, "anchors and aliases are not accepted")
		return
	}
	if !strings.HasPrefix(n.Tag, "!!") {
		d.Add(path, "the tag %s is not accepted", n.Tag)
		return
	}
	if null {
		return // left at its default
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if d.wants(path, n, yaml.ScalarNode, "a single value") {
			if err := u.UnmarshalText([]byte(n.Value)); err != nil {
				d.Add(path, "%v", err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		before := len(d.problems) + d.unlisted
		to := reflect.New(v.Type().Elem())
		d.value(path, n, to.Elem(), depth)
		if len(d.problems)+d.unlisted == before { // otherwise the field stays out, so that it is not reported twice
			v.Set(to)
		}
	case reflect.Struct:
		if d.wants(path, n, yaml.MappingNode, "a mapping") {
			d.structure(path, n, v, depth)
		}
	case reflect.Map:
		if d.wants(path, n, yaml.MappingNode, "a mapping") {
			d.mapping(path, n, v, depth)
		}
	case reflect.Slice:
		if d.wants(path, n, yaml.SequenceNode, "a list") {
			v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
			for i, item := range n.Content {
				d.item(fmt.Sprintf("%s[%d]", path, i), item, v.Index(i), depth+1)
			}
		}
	default:
		if d.wants(path, n, yaml.ScalarNode, "a single value") {
			d.scalar(path, n, v)
		}
	}
}

// item decodes an item of a list, which has no default: an empty user id would be root.
func (d *Document) item(path string, n *yaml.Node, v reflect.Value, depth int) {
	before := len(d.problems) + d.unlisted
	d.value(path, n, v, depth)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" && len(d.problems)+d.unlisted == before {
		d.Add(path, "the item is empty: take it away, or write what it is")
	}
}

func (d *Document) wants(path string, n *yaml.Node, kind yaml.Kind, what string) bool {
	if n.Kind == kind {
		return true
	}
	got := map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list",
		yaml.ScalarNode: "a single value"}[n.Kind]
	d.Add(path, "%s is expected, not %s", what, got)
	return false
}

func (d *Document) structure(path string, n *yaml.Node, v reflect.Value, depth int) {
	fields := map[string]reflect.Value{}
	names := []string{}
	collect(v, fields, &names)
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		d.places[at] = place{key.Line, key.Column}
		field, ok := fields[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.Add(path, "a key must be a single word")
		case key.Anchor != "":
			d.Add(at, "anchors and aliases are not accepted")
		case seen[key.Value]:
			d.Add(at, "the key stands twice")
		case !ok:
			meant := ";"
			if near := Meant(key.Value, names...); near != "" {
				meant = near
			}
			d.Add(at, "unknown key%s known here: %s", meant, strings.Join(names, ", "))
		default:
			d.value(at, item, field, depth+1)
		}
		seen[key.Value] = true
	}
}

// collect maps the json names of a struct's fields, including embedded structs.
func collect(v reflect.Value, into map[string]reflect.Value, names *[]string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			collect(v.Field(i), into, names)
			continue
		}
		if name != "" && name != "-" {
			into[name] = v.Field(i)
			*names = append(*names, name)
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// scalar requires the YAML type of the value to match the field's type, so that "yes" is
// not a boolean and 0660 not silently an octal number.
func (d *Document) scalar(path string, n *yaml.Node, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if n.Tag != "!!str" {
			d.Add(path, "text is expected; put quotes around %s", n.Value)
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if n.Tag != "!!bool" || err != nil {
			d.Add(path, "true or false is expected, not %q", n.Value)
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64, reflect.Int32:
		i, err := strconv.ParseInt(n.Value, 10, v.Type().Bits())
		if n.Tag != "!!int" || err != nil {
			d.Add(path, "a whole number is expected, not %q", n.Value)
			return
		}
		v.SetInt(i)
	case reflect.Uint32:
		i, err := strconv.ParseUint(n.Value, 10, 32)
		if n.Tag != "!!int" || err != nil {
			d.Add(path, "a whole number from 0 to 4294967295 is expected, not %q", n.Value)
			return
		}
		v.SetUint(i)
	default:
		d.Add(path, "fields of kind %s cannot be read", v.Kind())
	}
}
