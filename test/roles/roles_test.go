// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// adder adds numbers.
type adder struct{ sum int }

func (a *adder) Do(op string, raw json.RawMessage) (any, error) {
	if op != "add" {
		return nil, ErrUnknown
	}
	n, err := Arguments[int](raw)
	a.sum += n
	return a.sum, err
}

// TestARoleAnswersInOrder: each request has its answer, a failure is one, and the
// end of the pipe is no failure.
func TestARoleAnswersInOrder(t *testing.T) {
	var out bytes.Buffer
	in := strings.NewReader(`{"op":"add","args":2}{"op":"sing"}{"op":"add","args":"x"}{"op":"add","args":3}`)
	if err := Serve(&adder{}, in, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || lines[0] != `{"result":2}` || !strings.Contains(lines[1], ErrUnknown.Error()) ||
		!strings.Contains(lines[2], `"error"`) || lines[3] != `{"result":5}` {
		t.Errorf("got %q", lines)
	}
	if err := Serve(&adder{}, strings.NewReader(`{"op":`), &out); err == nil {
		t.Error("half a request was accepted")
	}
}

func TestResources(t *testing.T) {
	if got, err := parseResident("Name:\tx\nVmRSS:\t    1024 kB\nThreads:\t3\n"); err != nil || got != 1<<20 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := parseResident("Name:\tx\n"); err == nil {
		t.Error("a status without VmRSS was accepted")
	}
	if got, want := ParseBusy("cpu  100 20 30 9999 9999 4 5 6 7777 7777"), 1650*time.Millisecond; got != want {
		t.Errorf("busy for %v, want %v", got, want)
	}
	rss, err := Resident(os.Getpid())
	n, derr := Descriptors(os.Getpid())
	if errors.Join(err, derr) != nil || rss < 1<<20 || n < 3 {
		t.Errorf("%d bytes, %v, %d descriptors, %v", rss, err, n, derr)
	}
}
