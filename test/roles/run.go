// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/tombolo-io/tombolo/test/lab"
)

// Judge is a run that judges what it finds: it reads the command line, does all, and
// gives the exit code, 1 where a figure is short.
func Judge[O any](args []string, parse func(args []string) (O, error), all func(O) (short bool, err error)) (code int, err error) {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return 2, err
	}
	short, err := all(o)
	if err != nil || short {
		return 1, err
	}
	return 0, nil
}

// InLab does body in a lab of its own. Whatever was started in it is gone when it returns.
func InLab(name string, body func(*lab.Lab) error) (err error) {
	l, err := lab.New(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return body(l)
}

// PrintTable prints rows with their cells below each other.
func PrintTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// Results is a file of JSON lines: a header, and each record as it comes.
type Results struct {
	file *os.File
	enc  *json.Encoder
}

// CreateResults begins the file. The run before stays beside it, to compare with.
func CreateResults(path string, header any) (*Results, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of results: %w", err)
	}
	err := os.Rename(path, strings.TrimSuffix(path, ".jsonl")+"-before.jsonl")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	r := &Results{file: f, enc: json.NewEncoder(f)}
	if err := r.Add(header); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// Add writes a record.
func (r *Results) Add(record any) error { return r.enc.Encode(record) }

// Close ends the file.
func (r *Results) Close() error { return r.file.Close() }
