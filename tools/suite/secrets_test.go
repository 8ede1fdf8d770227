// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func lay(t *testing.T, e *evidence, name, what, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(`{"of":"hub.test","what":"`+what+`"}`+"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAPlantedLeakIsFound leaks a secret in each spelling and place.
func TestAPlantedLeakIsFound(t *testing.T) {
	const secret = "mk6yvwqe.5j2h4k6l7m8n9p"
	for name, text := range map[string]string{
		"as it is":       "level=INFO msg=joined\nlevel=WARN reason=\"token " + secret + " unknown\"\n",
		"in hexadecimal": "first line\n{\"x\":\"" + hex.EncodeToString([]byte(secret)) + "\"}",
		"in base64":      "\n" + base64.StdEncoding.EncodeToString([]byte(secret+" and more")),
	} {
		t.Run(name, func(t *testing.T) {
			e := &evidence{t.TempDir()}
			lay(t, e, "secret-1", "the join token", secret)
			lay(t, e, "written-1", "the log of a hub", strings.Repeat("nothing\n", 3)+text)
			lay(t, e, "written-2", "the log of an agent", "joined with "+secret[:11]+"\n")
			err := e.check(true)
			if err == nil {
				t.Fatal("the leak is not found")
			}
			for _, want := range []string{"the join token (hub.test)", "line 5 of the log of a hub (hub.test)"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "of an agent") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAScanThatWouldProveNothingFails(t *testing.T) {
	e := &evidence{t.TempDir()}
	if e.check(true) == nil || e.check(false) != nil {
		t.Error("nothing was planted")
	}
	lay(t, e, "secret-1", "x", "a secret of some length")
	lay(t, e, "written-output", "the output of go test", "ok\n")
	if e.check(true) == nil || e.check(false) != nil {
		t.Error("nothing was written")
	}
	lay(t, e, "written-1", "a log", "fine\n")
	if err := e.check(true); err != nil {
		t.Error(err)
	}
}

// TestTheSuiteFailsOnALeak runs real tests of a module that leaks: once in what
// it hands over, once in what it prints.
func TestTheSuiteFailsOnALeak(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		bad  bool
	}{
		"in a log":    {`wrote("written-1", "a log", "the token is " + secret)`, true},
		"in a print":  {`t.Log("the token is " + secret); wrote("written-1", "a log", "fine")`, true},
		"no leak":     {`wrote("written-1", "a log", "fine")`, false},
		"no evidence": {``, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod": "module x\n\ngo 1.26\n",
				"x_test.go": `package x
import ("os"; "path/filepath"; "testing")
const secret = "c2VjcmV0IG9mIHRoZSB0ZXN0"
func wrote(name, what, text string) {
	os.WriteFile(filepath.Join(os.Getenv("TOMBOLO_TEST_PLANTED"), name), []byte("{\"what\":\"" + what + "\",\"of\":\"x\"}\n" + text), 0o600)
}
func TestX(t *testing.T) {
	wrote("secret-1", "the token", secret)
	` + c.body + "\n}\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := newRunner(io.Discard, time.Now)
			defer r.close()
			s := &stageRun{runner: r}
			err := s.test(testRun{dir: dir, packages: []string{"."}, planted: true}, "-v")
			if (err != nil) != c.bad {
				t.Errorf("%v", err)
			}
			if strings.HasPrefix(name, "in a") && (err == nil || !strings.Contains(err.Error(), "the token (x)")) {
				t.Errorf("%v", err)
			}
		})
	}
}

func BenchmarkFind(b *testing.B) {
	text := bytes.Repeat([]byte("a line of a log that has no secret in it\n"), 1<<14)
	byStart := map[string][]spelling{"0123456789ab": {{text: "0123456789abcdef"}}}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		find(origin{}, text, byStart)
	}
}
