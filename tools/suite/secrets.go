// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// plantedFolder is what internal/base/runtest calls PlantedFolder.
const plantedFolder = "TOMBOLO_TEST_PLANTED"

// leastSecret is the length of the shortest secret that is looked for, and how
// much of each finds its candidates.
const leastSecret = 12

// mostFindings is how many are reported one by one.
const mostFindings = 20

// evidence is a folder in which tests leave the secrets that they made, and what the
// program under test wrote.
type evidence struct{ dir string }

func newEvidence() (*evidence, error) {
	dir, err := os.MkdirTemp("", "planted-")
	if err != nil {
		return nil, err
	}
	return &evidence{dir}, os.Chmod(dir, 0o777|os.ModeSticky) // tests run parts as other users
}

func (e *evidence) remove() error { return os.RemoveAll(e.dir) }

// output makes a file for what the tests print.
func (e *evidence) output() (*os.File, error) {
	f, err := os.Create(filepath.Join(e.dir, "written-output"))
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(`{"what":"the output of go test","of":"suite"}` + "\n")
	return f, err
}

// origin describes a file of the folder.
type origin struct{ What, Of string }

func (o origin) String() string { return o.What + " (" + o.Of + ")" }

// check searches for every secret in everything that was written. With must it fails if
// there are no secrets, because it would prove nothing.
func (e *evidence) check(must bool) error {
	secrets, bySound, err := e.secrets()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(e.dir, "written-*"))
	if err != nil {
		return err
	}
	if must && (secrets == 0 || len(files) < 2) { // the output of go test is always there
		return fmt.Errorf("no secret was planted, or nothing was written: %d secrets, %d texts", secrets, len(files))
	}
	var found []error
	for _, file := range files {
		where, text, err := read(file)
		if err != nil {
			return err
		}
		found = append(found, find(where, text, bySound)...)
	}
	if n := len(found); n > mostFindings {
		found = append(found[:mostFindings], fmt.Errorf("and %d more", n-mostFindings))
	}
	return errors.Join(found...)
}

// spelling is one way to write a secret.
type spelling struct {
	text string
	of   origin
	how  string
}

// secrets reads the secrets, indexed by the first bytes of each spelling.
func (e *evidence) secrets() (n int, byStart map[string][]spelling, err error) {
	files, err := filepath.Glob(filepath.Join(e.dir, "secret-*"))
	if err != nil {
		return 0, nil, err
	}
	byStart = map[string][]spelling{}
	for _, file := range files {
		of, text, err := read(file)
		if err != nil {
			return 0, nil, err
		}
		if len(text) < leastSecret {
			return 0, nil, fmt.Errorf("%s is too short a secret", of)
		}
		for how, s := range map[string]string{
			"": string(text), " in hexadecimal digits": hex.EncodeToString(text),
			" in base64": strings.TrimRight(base64.StdEncoding.EncodeToString(text), "="),
		} {
			if how == " in base64" {
				s = s[:len(text)/3*4] // what does not depend on the bytes behind it
			}
			byStart[s[:leastSecret]] = append(byStart[s[:leastSecret]], spelling{s, of, how})
		}
	}
	return len(files), byStart, nil
}

func read(file string) (o origin, text []byte, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return o, nil, err
	}
	head, text, ok := bytes.Cut(data, []byte("\n"))
	if err := json.Unmarshal(head, &o); err != nil || !ok {
		return o, nil, fmt.Errorf("%s does not say what it is: %w", file, err)
	}
	return o, text, nil
}

// find returns the positions of secrets in a text, each secret once. It names a secret
// and never shows it.
func find(where origin, text []byte, byStart map[string][]spelling) (found []error) {
	seen := map[string]bool{}
	for i := 0; i+leastSecret <= len(text); i++ {
		for _, s := range byStart[string(text[i:i+leastSecret])] {
			if !bytes.HasPrefix(text[i:], []byte(s.text)) || seen[s.text] {
				continue
			}
			seen[s.text] = true
			line := 1 + bytes.Count(text[:i], []byte("\n"))
			found = append(found, fmt.Errorf("a secret leaked: %s stands%s in line %d of %s", s.of, s.how, line, where))
		}
	}
	return found
}
