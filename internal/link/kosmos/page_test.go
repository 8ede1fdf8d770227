// SPDX-License-Identifier: Apache-2.0

package kosmos_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/kosmos"
)

// line is a row as the page has it.
func line(r kosmos.Row) string {
	becomes := map[kosmos.Outcome]string{
		kosmos.Mapped: "`" + r.To + "`", kosmos.Renewed: "found out again, as `" + r.To + "`",
		kosmos.Gone: "no meaning any more", kosmos.Withheld: "**not copied**",
	}[r.Outcome]
	if r.Why != "" {
		becomes += ": " + r.Why
	}
	return "| `" + r.Field + "` | " + becomes + " |"
}

// TestThePageHasTheTable: the page for those who come from Kosmos says of each field what the program does.
func TestThePageHasTheTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/howto/from-kosmos.md")
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for l := range strings.Lines(string(page)) {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "| `spec.") || strings.HasPrefix(l, "| `status.") || strings.HasPrefix(l, "| `metadata") {
			have = append(have, l)
		}
	}
	for _, r := range kosmos.Rows() {
		want = append(want, line(r))
	}
	if got, should := strings.Join(have, "\n"), strings.Join(want, "\n"); got != should {
		t.Errorf("the page has\n%s\nthe table is\n%s", got, should)
	}
}
