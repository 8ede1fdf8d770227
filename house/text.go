// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// machineTraces are strings that reveal the machine on which the repository was written.
// They are concatenated so that this file does not contain them.
func machineTraces() []string {
	slash := "/"
	return []string{
		slash + "work" + slash, // a workspace
		slash + "root" + slash, // a home
		slash + "home" + slash,
		".." + slash + "shared" + slash,
		"/tmp/" + "plan",
		"proxy." + "golang.org", "sum." + "golang.org", "registry." + "npmjs.org", "deb." + "debian.org",
		"goproxy" + ".cn",
	}
}

func checkMachineTraces(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Files {
		if f.Path == "LICENSE" || bytes.IndexByte(f.Data[:min(len(f.Data), 8000)], 0) >= 0 {
			continue // a binary file
		}
		for i, line := range strings.Split(string(f.Data), "\n") {
			for _, trace := range machineTraces() {
				if pos := strings.Index(line, trace); pos >= 0 && !continuesPath(line, pos, trace) {
					out = append(out, Breach{f.Path, i + 1, "contains " + trace})
				}
			}
		}
	}
	return out
}

// continuesPath reports whether the trace is the middle of a longer path, such as the
// word work in a relative path, which reveals nothing.
func continuesPath(line string, pos int, trace string) bool {
	if pos == 0 || trace[0] != '/' {
		return false
	}
	c := rune(line[pos-1])
	return unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("_-.)}", c)
}

// link finds [text](target) and ![text](target) in Markdown.
func link() *regexp.Regexp { return regexp.MustCompile(`\]\(<?([^()\s>]+)>?(?:\s+"[^"]*")?\)`) }

func checkLinks(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Files {
		if path.Ext(f.Path) != ".md" {
			continue
		}
		for i, line := range proseLines(f.Data) {
			for _, m := range link().FindAllStringSubmatch(line, -1) {
				if why := t.follow(f, m[1]); why != "" {
					out = append(out, Breach{f.Path, i + 1, why})
				}
			}
		}
	}
	return out
}

// follow returns the reason why a link is broken, or "".
func (t *Tree) follow(from *File, target string) string {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return "link " + target + " is malformed"
	case u.Scheme != "" || u.Host != "":
		return "" // outside
	case strings.HasPrefix(u.Path, "/"):
		return "link " + target + " is absolute: links are relative to the page"
	}
	to := from.Path
	if u.Path != "" {
		to = path.Join(from.Dir(), u.Path)
	}
	page := t.Lookup(to)
	if page == nil && !t.folder(to) {
		return "link " + target + " leads nowhere: there is no " + to
	}
	if page == nil || u.Fragment == "" || path.Ext(to) != ".md" {
		return ""
	}
	if !slices.Contains(anchors(page.Data), u.Fragment) {
		return "link " + target + " leads nowhere: " + to + " has no heading for #" + u.Fragment
	}
	return ""
}

func (t *Tree) folder(p string) bool {
	return p == "." || slices.ContainsFunc(t.Files, func(f *File) bool { return strings.HasPrefix(f.Path, p+"/") })
}

// proseLines returns the lines of a page, with empty lines in place of code.
func proseLines(data []byte) []string {
	lines := strings.Split(string(data), "\n")
	code := regexp.MustCompile("`[^`]*`")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced {
			lines[i] = ""
		} else {
			lines[i] = code.ReplaceAllString(line, "")
		}
		if fence {
			fenced = !fenced
		}
	}
	return lines
}

// anchors returns the fragments of a page as a forge makes them: lower case,
// punctuation dropped, spaces to hyphens, repetitions numbered; and explicit
// <a id="..."> anchors.
func anchors(data []byte) []string {
	var out []string
	count := map[string]int{}
	for _, line := range headings(data) {
		var b strings.Builder
		for _, c := range strings.ToLower(line) {
			switch {
			case unicode.IsLetter(c) || unicode.IsDigit(c) || c == '_' || c == '-':
				b.WriteRune(c)
			case c == ' ':
				b.WriteByte('-')
			}
		}
		name := b.String()
		if n := count[name]; n > 0 {
			out = append(out, sprintf("%s-%d", name, n))
		} else {
			out = append(out, name)
		}
		count[name]++
	}
	for _, m := range regexp.MustCompile(`<a (?:id|name)="([^"]+)"`).FindAllSubmatch(data, -1) {
		out = append(out, string(m[1]))
	}
	return out
}

// headings returns the text of the headings of a page.
func headings(data []byte) []string {
	var out []string
	fenced := false
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if text := strings.TrimLeft(line, "#"); !fenced && len(text) < len(line) && strings.HasPrefix(text, " ") {
			out = append(out, strings.TrimSpace(text))
		}
	}
	return out
}
