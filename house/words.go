// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// bannedWord is a word of our own, and the usual one in its place (docs/glossary.md).
type bannedWord struct {
	word, instead string
}

// glossaryWords are words that identifiers and comments must not contain.
func glossaryWords() []bannedWord {
	return []bannedWord{
		{"baton", "turn"},
		{"crossing", "simultaneous handshakes"},
		{"finder", "discovery client"},
		{"hurry", "probe now"},
		{"knock", "refused peer"},
		{"lesson", "learned"},
		{"mirror", "STUN server"},
		{"remark", "request metadata"},
		{"stranger", "unauthenticated connection"},
		{"toll", "rate limit"},
		{"trail", "record"},
		{"witness", "source"},
	}
}

// bannedPhrase is a construction that a page must not have, and what to write instead.
type bannedPhrase struct {
	found   *regexp.Regexp
	instead string
}

func bannedPhrases() (out []bannedPhrase) {
	for _, p := range [][2]string{
		{`(tell|tells|told) of`, "reports, announces, shows"},
		{`(go|goes|went|going) on`, "continues, keeps running"},
		{`of now`, "present"},
		{`of before`, "earlier"},
		{`(is|are) others'`, "belongs to others"},
		{`by (the|a|its) relay`, "through the relay"},
		{`by which way`, "which path"},
		{`direct ways?`, "direct path"},
		{`hears? of`, "learns of"},
		{`is said of`, "is stated about"},
		{`(is|are|needs?|counts?|knows?) no more`, "no longer"},
	} {
		out = append(out, bannedPhrase{regexp.MustCompile(`(?i)\b` + p[0] + `\b`), p[1]})
	}
	return append(out, bannedPhrase{headlessWho(), "anyone who, or the word for that party"})
}

// headlessWho finds a sentence that starts with Who and is not a question.
func headlessWho() *regexp.Regexp { return regexp.MustCompile(`(?:^|[.:;] )Who [^?|]*[.:;]`) }

// checkWords applies the glossary to identifiers and comments of the product, and to pages.
// Decisions and the changelog are history: they keep the words of their time.
func checkWords(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Files {
		switch {
		case path.Ext(f.Path) == ".md" && f.Path != "docs/glossary.md" && f.Path != "CHANGELOG.md" &&
			f.Dir() != "docs/decisions":
			out = append(out, pageWords(f)...)
		case f.AST != nil && f.Product() && !f.Test() && !f.Generated:
			out = append(out, t.codeWords(f)...)
		}
	}
	return out
}

func pageWords(f *File) []Breach {
	var out []Breach
	phrases := bannedPhrases()
	for i, line := range proseLines(f.Data) {
		if strings.HasPrefix(line, "<!--") {
			continue
		}
		for _, p := range phrases {
			if m := p.found.FindString(line); m != "" {
				out = append(out, Breach{f.Path, i + 1, sprintf("%q: say %q", strings.Trim(m, " .:;"), p.instead)})
			}
		}
		for _, b := range glossaryWords() {
			if hasWord(line, b.word) {
				out = append(out, Breach{f.Path, i + 1, sprintf("%q: say %q", b.word, b.instead)})
			}
		}
	}
	return out
}

// codeWords reports each word once per file.
func (t *Tree) codeWords(f *File) []Breach {
	var out []Breach
	said := map[string]bool{}
	look := func(n ast.Node, text string) {
		for _, b := range glossaryWords() {
			if !said[b.word] && hasWord(text, b.word) {
				said[b.word] = true
				out = append(out, t.breach(f, n, "%q: say %q", b.word, b.instead))
			}
		}
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			look(id, id.Name)
		}
		return true
	})
	for _, group := range f.AST.Comments {
		look(group, group.Text())
	}
	return out
}

// hasWord finds a word, or its plural, in prose and in the parts of an identifier.
func hasWord(text, word string) bool {
	lower := strings.ToLower(text)
	for from := 0; ; {
		at := strings.Index(lower[from:], word)
		if at < 0 {
			return false
		}
		at += from
		end := at + len(word)
		if end < len(text) && text[end] == 's' {
			end++
		}
		before := at == 0 || !unicode.IsLetter(rune(text[at-1])) ||
			unicode.IsUpper(rune(text[at])) && unicode.IsLower(rune(text[at-1]))
		after := end == len(text) || !unicode.IsLower(rune(text[end]))
		if before && after {
			return true
		}
		from = at + 1
	}
}

// sourceLink is a link from a page to a name in a Go file: [`name`](file.go).
func sourceLink() *regexp.Regexp {
	return regexp.MustCompile("\\[`([A-Za-z]\\w*)`\\]\\(([^)#\\s]+\\.go)\\)")
}

// checkSourceLinks requires that the file of a link to a function or type declares it.
func checkSourceLinks(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Files {
		if path.Ext(f.Path) != ".md" {
			continue
		}
		for i, line := range strings.Split(string(f.Data), "\n") {
			for _, m := range sourceLink().FindAllStringSubmatch(line, -1) {
				to := t.Lookup(path.Join(f.Dir(), m[2]))
				if to != nil && !declares(to, m[1]) {
					out = append(out, Breach{f.Path, i + 1, sprintf("%s has no %s: say where it is now", to.Path, m[1])})
				}
			}
		}
	}
	return out
}

// declares reports whether a file has a function, method or type of that name.
func declares(f *File, name string) bool {
	if f.AST == nil {
		return false
	}
	for _, decl := range f.AST.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name {
				return true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.Name == name {
					return true
				}
			}
		}
	}
	return false
}

// mostColumns is the greatest width of prose.
const mostColumns = 120

func checkPageWidths(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Files {
		if path.Ext(f.Path) != ".md" || f.Path == "CHANGELOG.md" || f.Dir() == "docs/decisions" {
			continue
		}
		prose := proseLines(f.Data)
		for i, line := range strings.Split(string(f.Data), "\n") {
			n := utf8.RuneCountInString(line)
			if n > mostColumns && prose[i] != "" && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "<!--") {
				out = append(out, Breach{f.Path, i + 1, sprintf("%d columns: prose has at most %d", n, mostColumns)})
			}
		}
	}
	return out
}

// fileRow is a row of a README's table of files.
func fileRow() *regexp.Regexp { return regexp.MustCompile("^\\| *(`[^|]*`) *\\|") }

// checkFileTables requires that the files in the tables of READMEs exist.
func checkFileTables(t *Tree) []Breach {
	var out []Breach
	name := regexp.MustCompile("`([a-z0-9_]+\\.go|[a-z0-9_]+/)`")
	for _, f := range t.Files {
		if path.Base(f.Path) != "README.md" || !strings.HasPrefix(f.Path, "internal/") {
			continue
		}
		for i, line := range strings.Split(string(f.Data), "\n") {
			row := fileRow().FindStringSubmatch(line)
			if row == nil {
				continue
			}
			for _, m := range name.FindAllStringSubmatch(row[1], -1) {
				p := path.Join(f.Dir(), m[1])
				if t.Lookup(p) == nil && !t.folder(p) {
					out = append(out, Breach{f.Path, i + 1, sprintf("there is no %s", p)})
				}
			}
		}
	}
	return out
}
