// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// List lists the files that paths name: files themselves, and in folders
// what ends in .yaml or .yml and is not hidden, without going deeper.
func List(paths []string) ([]string, error) {
	var out []string
	var errs []error
	for _, p := range paths {
		info, err := os.Stat(p)
		if err == nil && !info.IsDir() {
			out = append(out, filepath.Clean(p))
			continue
		}
		var entries []fs.DirEntry
		if err == nil {
			entries, err = os.ReadDir(p)
		}
		if err != nil {
			errs = append(errs, unreadable(p, err))
			continue
		}
		for _, e := range entries {
			if isName(e.Name()) {
				out = append(out, filepath.Join(p, e.Name()))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), errors.Join(errs...)
}

func unreadable(path string, err error) error {
	return fault.Newf(fault.CodeConfig, "the policy %s cannot be read", path).Because(err).Hint("correct policies")
}

// isName says whether a folder's entry of this name is a policy.
func isName(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml")
}

// Read compiles one file with its lists; the policy is nil if a finding
// is more than a warning.
func Read(file string) (*policy.Policy, []policy.Finding, error) {
	p, findings, _, err := read(file, readBounded)
	return p, findings, err
}

// reader gives the content of a file of at most so many bytes.
type reader func(path string, most int64) ([]byte, error)

func read(file string, read reader) (*policy.Policy, []policy.Finding, reading, error) {
	stamp := stampOf(file) // before it is read
	data, err := read(file, limit.ConfigFile)
	if err != nil {
		err = fault.Newf(fault.CodeConfig, "the policy %s cannot be read", file).Because(err).
			Hint("correct the file, or take it away")
		return nil, nil, reading{stamps: []fileStamp{stamp}}, err
	}
	p, findings, f := parse(file, data, read)
	f.stamps, f.rules = append(f.stamps, stamp), p.Size()
	return p, findings, f, nil
}

// Parse is ReadPolicy of a file that was read already.
func Parse(file string, data []byte) (*policy.Policy, []policy.Finding) {
	p, findings, _ := parse(file, data, readBounded)
	return p, findings
}

func parse(file string, data []byte, read reader) (p *policy.Policy, findings []policy.Finding, f reading) {
	p, findings = policy.Read(file, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		f.stamps = append(f.stamps, stampOf(filepath.Clean(path)))
		return read(path, limit.PolicyList)
	})
	return p, findings, f
}

// Lists are the lists of a file that was found good.
func Lists(file string) ([]policy.List, error) {
	data, err := readBounded(file, limit.ConfigFile)
	if err != nil {
		return nil, fault.Newf(fault.CodeConfig, "the policy %s cannot be read", file).Because(err)
	}
	return policy.Lists(file, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		return readBounded(path, limit.PolicyList)
	}), nil
}

func readBounded(path string, most int64) ([]byte, error) {
	return private.ReadPublic(path, int(most))
}

// Judge says what is wrong with files that other paths than those in force
// lead to. They have no last good content that could stay, and what they deny must
// not be open meanwhile. A file that is known is judged when it is read anew.
func (p *Files) Judge(paths []string) error {
	if slices.Equal(paths, p.paths()) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	files, err := List(paths)
	errs := []error{err}
	for _, file := range files {
		_, seen := p.seen[file]
		if _, refused := p.refused[file]; seen || refused {
			continue
		}
		_, findings, _, err := read(file, p.read)
		errs = append(errs, err, Fault(file, findings))
	}
	return errors.Join(errs...)
}

// Load reads what has changed and puts it into force: of all files of the
// settings, or only of those that are named. A file with mistakes keeps its last
// good content; the others go on. Its error names every mistake.
func (p *Files) Load(named ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	paths := p.paths() // in turn with others, so that none puts old paths into force
	defer p.publish()
	files, gone, err := p.look(paths, named)
	if err != nil { // a folder that is gone for a moment must not open or close anything
		p.Reloaded(err)
		return err
	}
	changed := map[string]*policy.Policy{}
	var refused refusals
	for _, file := range files {
		if _, bad := p.refused[file]; !bad && len(named) == 0 && p.seen[file].fresh() {
			continue // one that is named was written, whatever its stamp says
		}
		compiled, findings, f, err := read(file, p.read)
		if err == nil {
			p.warn(findings)
			err = Fault(file, findings)
		}
		p.remember(file, f)
		if err != nil {
			_, known := p.seen[file]
			p.refused[file] = admin.PolicyRefusal{File: file, Reason: oneLine(err), At: p.Now().UTC(), New: !known}
			p.Reloaded(err)
			refused = append(refused, refusal{err, known})
			continue
		}
		p.accept(file, f)
		changed[file] = compiled
	}
	for _, file := range gone {
		if _, known := p.seen[file]; known {
			changed[file] = nil
		}
		p.forget(file)
	}
	if set := len(paths) > 0; len(changed) > 0 || set != p.Table.Configured() {
		p.end(p.Table.Replace(set, changed))
		p.Reloaded(nil)
		p.Log.Info("policy loaded", "files", len(p.seen), "changed", len(changed))
	}
	return refused.err()
}

// end ends streams that a changed policy refuses, each with the ruling in its record.
func (p *Files) end(refused []authz.Overruled) {
	for _, r := range refused {
		q := r.Request()
		p.Log.Debug("a stream ends that the changed policy refuses", telemetry.AttrCluster, q.Cluster,
			telemetry.AttrTarget, authz.Destination(q),
			telemetry.AttrCaller, q.Caller, telemetry.AttrReason, r.Ruling.Why())
		r.Overrule(r.Ruling)
	}
	if len(refused) > 0 {
		p.Log.Info("streams ended that the changed policy refuses", "streams", len(refused),
			"version", p.Table.Whole().String())
	}
}

// oneLine is a fault as a status shows it.
func oneLine(err error) string {
	return untrusted.Text(strings.Join(strings.Fields(fault.From(err).Error()), " "), 400)
}

func (p *Files) warn(findings []policy.Finding) {
	for _, f := range findings {
		if f.Warning {
			p.Log.Warn("policy", telemetry.AttrReason, f.String())
		}
	}
}

// Fault makes one fault of what is wrong with a file, nil if nothing is.
func Fault(file string, findings []policy.Finding) error {
	var lines []string
	for _, f := range findings {
		if !f.Warning {
			lines = append(lines, f.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	const shown = 20
	if more := len(lines) - shown; more > 0 {
		lines = append(lines[:shown], fmt.Sprintf("and %d more", more))
	}
	return fault.Newf(fault.CodeConfig, "the policy %s has problems", file).Whyf("\n  %s", strings.Join(lines, "\n  ")).
		Hint("check it with: tombolo policy check %s", file)
}
