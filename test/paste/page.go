// SPDX-License-Identifier: Apache-2.0

package paste

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Step is a block of a page, or something that a comment says is done there.
type Step struct {
	Line     int
	Language string // of a block; empty: none, or output
	Text     string // of a block, or the command of a comment
	Machines []string
	Terminal string
	Words    []string // that are replaced
	GoesOn   bool
	CtrlC    bool
	Why      string // it is not run
	File     string // a block that is written, or a file that is copied from Machines[0] to To
	To       string
	Run      bool
}

var (
	comment = regexp.MustCompile(`^<!-- (run|not run|given on [a-z0-9-]+|copied from [a-z0-9-]+ to [a-z0-9-]+|file on [a-z0-9-]+): (.+) -->$`)
	fence   = regexp.MustCompile("^(```+)([a-z]*)$")
)

// Machines are those that a page can name, with their addresses.
func Machines() map[string]string {
	return map[string]string{"hub": "192.0.2.10", "node-1": "192.0.2.11", "node-2": "192.0.2.12"}
}

// Read gives the steps of a page, and what is wrong with it.
func Read(page string) (steps []Step, problems []string) {
	bad := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
	}
	lines := strings.Split(page, "\n")
	var said *Step // by the comment right above
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "<!-- ") {
			step, err := parse(lines[i])
			if step.Line = i + 1; err != "" {
				bad(i+1, "%s", err)
			}
			if step.Text != "" || step.To != "" {
				steps = append(steps, step)
				continue
			}
			said = &step
			continue
		}
		open := fence.FindStringSubmatch(lines[i])
		if open == nil {
			if said != nil {
				bad(said.Line, "no block follows")
			}
			said = nil
			continue
		}
		first := i + 1
		for i++; i < len(lines) && lines[i] != open[1]; i++ {
		}
		step := Step{Line: first, Language: open[2], Text: strings.Join(lines[first:min(i, len(lines))], "\n")}
		if said != nil {
			said.Language, said.Text = step.Language, step.Text
			step = *said
		}
		kind := step.Language == "yaml" && strings.Contains("\n"+step.Text, "\nkind: ") && strings.Contains(step.Text, "tombolo.dev/")
		switch {
		case step.Language == "" && said != nil:
			bad(first, "output has a comment; name the language")
		case step.Language != "" && !step.Run && step.Why == "" && step.File == "" && !kind:
			bad(first, "a block of %s is neither run nor marked", step.Language)
		}
		steps, said = append(steps, step), nil
	}
	return steps, problems
}

// parse reads a comment.
func parse(line string) (s Step, err string) {
	m := comment.FindStringSubmatch(line)
	if m == nil {
		return s, "the comment is none of those that test/paste knows"
	}
	what := strings.Fields(m[1])
	switch what[0] {
	case "not":
		s.Why = m[2]
		return s, ""
	case "given":
		s.Machines, s.Terminal, s.Text, s.Run = what[2:3], "given", m[2], true
		for w := range words() {
			if strings.Contains(s.Text, w) {
				s.Words = append(s.Words, w)
			}
		}
	case "copied":
		s.Machines, s.To, s.File = what[2:3], what[4], m[2]
	case "file":
		s.Machines, s.File = what[2:3], m[2]
	default:
		s.Run = true
		parts := strings.Split(m[2], ", ")
		s.Machines = strings.Fields(parts[0])
		for _, p := range parts[1:] {
			switch words := strings.Fields(p); {
			case p == "goes on":
				s.GoesOn = true
			case p == "after Ctrl-C":
				s.CtrlC = true
			case words[0] == "terminal" && len(words) == 2:
				s.Terminal = words[1]
			case words[0] == "with":
				s.Words = words[1:]
			default:
				err = fmt.Sprintf("%q is unknown", p)
			}
		}
	}
	for _, m := range append(slices.Clone(s.Machines), s.To) {
		if _, known := Machines()[m]; !known && m != "" {
			err = fmt.Sprintf("there is no machine %q", m)
		}
	}
	for _, w := range s.Words {
		if _, known := words()[w]; !known {
			err = fmt.Sprintf("nothing is known to put in place of %q", w)
		}
	}
	return s, err
}

// words are what a reader replaces, and where in the output so far the value stands, or the value.
func words() map[string]string {
	return map[string]string{
		"PIN":    `CA pin (\S+)`,
		"LINE":   `(tombolo://\S+)`,
		"SERIAL": `certificate (\S+) for `,
		"NODE":   "node-2",
	}
}

// fill replaces the words of a step by what was printed so far.
func (s Step) fill(printed string) (string, error) {
	text := s.Text
	for _, w := range s.Words {
		value := words()[w]
		if strings.Contains(value, "(") {
			all := regexp.MustCompile(value).FindAllStringSubmatch(printed, -1)
			if len(all) == 0 {
				return "", fmt.Errorf("nothing that was printed so far is %s", w)
			}
			value = all[len(all)-1][1]
		}
		text = regexp.MustCompile(`\b`+w+`\b`).ReplaceAllLiteralString(text, value)
	}
	return text, nil
}
