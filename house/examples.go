// SPDX-License-Identifier: Apache-2.0

package house

import (
	"path"
	"regexp"
	"strings"
)

// Example is a Tombolo configuration in a page or a manifest.
type Example struct {
	Path string
	Line int
	Kind string
	Text string
}

// ours matches a Tombolo configuration.
func ours() *regexp.Regexp { return regexp.MustCompile(`(?m)^apiVersion:\s*["']?tombolo\.dev/`) }

// Examples finds the configurations in ```yaml blocks of Markdown pages and in YAML files.
func Examples(t *Tree) []Example {
	var out []Example
	for _, f := range t.Files {
		switch path.Ext(f.Path) {
		case ".md":
			for _, block := range fencedBlocks(string(f.Data)) {
				out = appendDocuments(out, f.Path, block.line, block.text)
			}
		case ".yaml", ".yml":
			out = appendDocuments(out, f.Path, 1, string(f.Data))
		}
	}
	return out
}

func appendDocuments(out []Example, file string, line int, text string) []Example {
	kind := regexp.MustCompile(`(?m)^kind:\s*["']?([A-Za-z]+)`)
	for doc := range strings.SplitSeq(text, "\n---\n") {
		if ours().MatchString(doc) {
			e := Example{Path: file, Line: line, Text: doc + "\n"}
			if m := kind.FindStringSubmatch(doc); m != nil {
				e.Kind = m[1]
			}
			out = append(out, e)
		}
		line += strings.Count(doc, "\n") + 2
	}
	return out
}

type block struct {
	line int // of the first line inside
	text string
}

// fencedBlocks gives the yaml blocks of a page, without the indentation of their fence.
func fencedBlocks(page string) []block {
	var out []block
	var current *block
	indent := ""
	for i, line := range strings.Split(page, "\n") {
		text := strings.TrimLeft(line, " ")
		switch {
		case current == nil && (strings.HasPrefix(text, "```yaml") || strings.HasPrefix(text, "```yml")):
			indent = line[:len(line)-len(text)]
			current = &block{line: i + 2}
		case current != nil && strings.HasPrefix(text, "```"):
			out = append(out, *current)
			current = nil
		case current != nil:
			current.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return out
}
