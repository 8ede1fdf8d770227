// SPDX-License-Identifier: Apache-2.0

package runtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// PlantedFolder is the environment variable with the folder where tests leave their
// secrets, and what programs wrote. After each stage the suite searches for the secrets in
// the writings (tools/suite). Without it Plant and Wrote do nothing.
const PlantedFolder = "TOMBOLO_TEST_PLANTED"

// leastSecret is the length below which a text may occur by chance.
const leastSecret = 12

// Plant registers a secret with the suite; of a text of several lines, such as a PEM key,
// each long line.
func Plant(what, value string) error {
	folder := os.Getenv(PlantedFolder)
	if folder == "" {
		return nil
	}
	n := 0
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		if len(line) < leastSecret || strings.HasPrefix(line, "-----") {
			continue
		}
		n++
		if err := leave(folder, "secret-", what, line); err != nil {
			return err
		}
	}
	if n == 0 {
		return fmt.Errorf("%s has no line of %d bytes, and could stand somewhere by chance", what, leastSecret)
	}
	return nil
}

// Wrote registers what the program under test wrote, which must contain no secret.
func Wrote(where, text string) error {
	folder := os.Getenv(PlantedFolder)
	if folder == "" || text == "" {
		return nil
	}
	return leave(folder, "written-", where, text)
}

// WroteFile registers a file; a missing one counts as empty.
func WroteFile(where, path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, Wrote(where, string(text)))
}

// leave writes a file: a line of JSON that describes it, then the text.
func leave(folder, kind, what, text string) error {
	head, err := json.Marshal(map[string]string{"what": what, "of": filepath.Base(os.Args[0])})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, kind)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, string(head)+"\n"+text)
	return errors.Join(err, f.Close())
}
