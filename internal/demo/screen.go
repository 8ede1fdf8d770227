// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Screen is where the demo prints its steps. On a terminal a step is shown while it
// runs and then overwritten by its outcome; elsewhere each outcome is a line.
type Screen struct {
	Out   io.Writer
	Live  bool // a terminal: lines may be overwritten
	Color bool
	Width int // of the terminal; 0 means unknown

	failed error // the first write that failed: nobody watches any more
}

// Terminal escapes (ECMA-48, 8.3.117 and 8.3.41).
const (
	bold, dim, red, green, reset = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"
	clearLine                    = "\r\x1b[K"
)

const nameWidth = 24 // the column of step names

func (s *Screen) paint(color, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return color + text + reset
}

func (s *Screen) line(format string, args ...any) {
	s.write(fmt.Sprintf(format+"\n", args...))
}

func (s *Screen) write(text string) {
	if s.failed != nil {
		return
	}
	if _, err := io.WriteString(s.Out, text); err != nil {
		s.failed = fmt.Errorf("writing the demo's output: %w", err)
	}
}

// fault is nil as long as everything could be written.
func (s *Screen) fault() error {
	if s.failed == nil {
		return nil
	}
	return fault.New(fault.CodeOutput, "the demo has no audience").Because(s.failed).
		Hint("look where stdout leads: to a full disk, or to a reader that has gone")
}

// title opens the demo.
func (s *Screen) title(text string, body ...string) {
	s.line("%s", s.paint(bold, text))
	s.block(body...)
}

// block prints indented lines with an empty line around them.
func (s *Screen) block(lines ...string) {
	s.line("")
	for _, l := range lines {
		s.line("%s", strings.TrimRight("    "+l, " "))
	}
	s.line("")
}

// step does one part of the demo and tells its outcome with its time. What do
// returns is the outcome; its lines after the first stand below.
func (s *Screen) step(name string, do func() (string, error)) error {
	start := time.Now()
	if s.Live {
		s.write(s.fit("   … " + name))
	}
	outcome, err := do()
	if s.Live {
		s.write(clearLine)
	}
	took := fmt.Sprintf("%5.2f s", time.Since(start).Seconds())
	if err != nil {
		s.line("%s  %s", s.head(false, name, took), firstLine(err.Error()))
		return fmt.Errorf("%s: %w", name, err)
	}
	outcome, below := s.arrange(outcome)
	s.line("%s", strings.TrimRight(s.head(true, name, took)+"  "+outcome, " "))
	for _, l := range below {
		s.line("%s", l)
	}
	return nil
}

// arrange splits an outcome into what stands beside the step's name and the
// lines below, wrapped to the terminal.
func (s *Screen) arrange(outcome string) (beside string, below []string) {
	const column = 4 + 1 + nameWidth + 1 + 7 + 2
	const narrow = column + 50
	if s.Width > 0 && s.Width < narrow {
		return "", s.wrap(outcome, 7)
	}
	lines := s.wrap(outcome, column)
	return strings.TrimLeft(lines[0], " "), lines[1:]
}

// wrap indents the lines and, where the width of the terminal is known, breaks
// those that are too long between words.
func (s *Screen) wrap(text string, indent int) []string {
	margin := strings.Repeat(" ", indent)
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		if s.Width == 0 || indent+utf8.RuneCountInString(line) <= s.Width {
			lines = append(lines, margin+line)
			continue
		}
		row := margin
		for i, word := range strings.Fields(line) {
			if i > 0 && utf8.RuneCountInString(row)+1+utf8.RuneCountInString(word) > s.Width {
				lines = append(lines, row)
				row = margin + " "
			}
			if i > 0 {
				row += " "
			}
			row += word
		}
		lines = append(lines, row)
	}
	return lines
}

// head is what stands left of an outcome.
func (s *Screen) head(ok bool, name, took string) string {
	return s.mark(ok) + " " + s.paint(bold, pad(name)) + " " + s.paint(dim, took)
}

func (s *Screen) mark(ok bool) string {
	switch {
	case ok && s.Live:
		return "   " + s.paint(green, "✓")
	case ok:
		return "  ok"
	case s.Live:
		return "   " + s.paint(red, "✗")
	}
	return "FAIL"
}

// fit keeps a line that will be overwritten within one row.
func (s *Screen) fit(line string) string {
	if s.Width <= 1 || utf8.RuneCountInString(line) < s.Width {
		return line
	}
	return string([]rune(line)[:s.Width-1])
}

// pad fills a name up to the column.
func pad(name string) string {
	if missing := nameWidth - utf8.RuneCountInString(name); missing > 0 {
		return name + strings.Repeat(" ", missing)
	}
	return name
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
