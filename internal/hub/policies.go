// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/policy"
	"github.com/tombolo-io/tombolo/internal/tell"
)

// policies reads the files of the policy and puts into force what has changed.
type policies struct {
	mu   sync.Mutex // one reading at a time
	seen map[string]policyFile
}

// policyFile is what was read of one file.
type policyFile struct {
	stamps []fileStamp // of the file and of its lists
}

// fileStamp tells whether a file has changed. A file that is written within one tick of
// the file system's clock keeps its time; its size or number seldom stays then.
type fileStamp struct {
	path string
	size int64
	at   time.Time
	real string // where links lead: a ConfigMap is replaced by moving one
}

func stampOf(path string) fileStamp {
	s := fileStamp{path: path, size: -1}
	if info, err := os.Stat(path); err == nil {
		s.size, s.at = info.Size(), info.ModTime()
		s.real, _ = filepath.EvalSymlinks(path)
	}
	return s
}

func (f policyFile) fresh() bool {
	return len(f.stamps) > 0 && !slices.ContainsFunc(f.stamps, func(s fileStamp) bool { return stampOf(s.path) != s })
}

// PolicyFiles lists the files that paths name: files themselves, and in folders
// what ends in .yaml or .yml and is not hidden, without going deeper.
func PolicyFiles(paths []string) ([]string, error) {
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
			errs = append(errs, fault.Newf(fault.CodeConfig, "the policy %s cannot be read", p).Because(err).Hint("correct policies"))
			continue
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); !strings.HasPrefix(e.Name(), ".") && (ext == ".yaml" || ext == ".yml") {
				out = append(out, filepath.Join(p, e.Name()))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), errors.Join(errs...)
}

// ReadPolicy compiles one file with its lists; the policy is nil if a finding
// is more than a warning.
func ReadPolicy(file string) (*policy.Policy, []policy.Finding, error) {
	p, findings, _, err := readPolicy(file)
	return p, findings, err
}

func readPolicy(file string) (*policy.Policy, []policy.Finding, policyFile, error) {
	stamp := stampOf(file) // before it is read
	data, err := readBounded(file, limit.ConfigFile)
	if err != nil {
		return nil, nil, policyFile{}, fault.Newf(fault.CodeConfig, "the policy %s cannot be read", file).Because(err)
	}
	p, findings, f := parsePolicy(file, data)
	f.stamps = append(f.stamps, stamp)
	return p, findings, f, nil
}

// ParsePolicy is ReadPolicy of a file that was read already.
func ParsePolicy(file string, data []byte) (*policy.Policy, []policy.Finding) {
	p, findings, _ := parsePolicy(file, data)
	return p, findings
}

func parsePolicy(file string, data []byte) (p *policy.Policy, findings []policy.Finding, f policyFile) {
	p, findings = policy.Read(file, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		f.stamps = append(f.stamps, stampOf(path))
		return readBounded(path, limit.PolicyList)
	})
	return p, findings, f
}

func readBounded(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case info.Size() > most:
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", info.Size(), most)
	}
	return os.ReadFile(path)
}

// load reads what has changed and puts it into force. A file with mistakes keeps
// its last good content; the others go on. Its error names every mistake.
func (h *Hub) loadPolicies(paths []string) error {
	h.policies.mu.Lock()
	defer h.policies.mu.Unlock()
	files, err := PolicyFiles(paths)
	if err != nil {
		return err // a folder that is gone for a moment must not open or close anything
	}
	changed := map[string]*policy.Policy{}
	read := map[string]policyFile{}
	var errs []error
	for _, file := range files {
		if h.policies.seen[file].fresh() {
			continue
		}
		p, findings, f, err := readPolicy(file)
		if err == nil {
			h.warn(findings)
			err = PolicyFault(file, findings)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changed[file], read[file] = p, f
	}
	for file := range h.policies.seen {
		if !slices.Contains(files, file) {
			changed[file] = nil
			delete(h.policies.seen, file)
		}
	}
	for file, f := range read {
		h.policies.seen[file] = f
	}
	if set := len(paths) > 0; len(changed) > 0 || set != h.access.configured() {
		h.cut(h.access.replace(set, changed))
		h.log.Info("policy loaded", "files", len(h.policies.seen), "changed", len(changed))
	}
	return errors.Join(errs...)
}

func (h *Hub) warn(findings []policy.Finding) {
	for _, f := range findings {
		if f.Warning {
			h.log.Warn("policy", tell.AttrReason, f.String())
		}
	}
}

// PolicyFault makes one fault of what is wrong with a file, nil if nothing is.
func PolicyFault(file string, findings []policy.Finding) error {
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
