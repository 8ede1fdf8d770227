// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// writerDir, if set, makes this test binary the writer of TestAKilledHubLosesNothing.
const writerDir = "TOMBOLO_TEST_STATE_WRITER"

// TestAKilledHubLosesNothing kills a process that writes tokens, without warning
// and several times over, and looks for every token that it had acknowledged.
func TestAKilledHubLosesNothing(t *testing.T) {
	if dir := os.Getenv(writerDir); dir != "" {
		writeForever(t, dir)
		return
	}
	dir := t.TempDir()
	acknowledged := map[string]bool{}
	for round := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAKilledHubLosesNothing$")
		cmd.Env = append(os.Environ(), writerDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			id, ok := strings.CutPrefix(lines.Text(), "stored ")
			if !ok {
				continue
			}
			acknowledged[id] = true
			if n++; n == 20+7*round {
				cmd.Process.Kill() // what it still wrote is read before the pipe ends
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("round %d: the writer ended by itself: %v", round, err)
		}

		s, err := state.Open(dir)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		tokens, err := s.Tokens()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, token := range tokens {
			there[token.ID] = true
		}
		for id := range acknowledged {
			if !there[id] {
				t.Fatalf("round %d: token %s was acknowledged and is not there", round, id)
			}
		}
	}
}

func writeForever(t *testing.T, dir string) {
	s, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authority("example.org", noon()); err != nil {
		t.Fatal(err)
	}
	for {
		token, _ := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
		if err := s.PutToken(token, noon()); err != nil {
			t.Fatal(err)
		}
		fmt.Println("stored", token.ID)
	}
}
