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

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

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
			errs = append(errs, unreadable(p, err))
			continue
		}
		for _, e := range entries {
			if isPolicyName(e.Name()) {
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

// isPolicyName says whether a folder's entry of this name is a policy.
func isPolicyName(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml")
}

// ReadPolicy compiles one file with its lists; the policy is nil if a finding
// is more than a warning.
func ReadPolicy(file string) (*policy.Policy, []policy.Finding, error) {
	p, findings, _, err := readPolicy(file, readBounded)
	return p, findings, err
}

// reader gives the content of a file of at most so many bytes.
type reader func(path string, most int64) ([]byte, error)

func readPolicy(file string, read reader) (*policy.Policy, []policy.Finding, policyFile, error) {
	stamp := stampOf(file) // before it is read
	data, err := read(file, limit.ConfigFile)
	if err != nil {
		err = fault.Newf(fault.CodeConfig, "the policy %s cannot be read", file).Because(err).Hint("correct the file, or take it away")
		return nil, nil, policyFile{stamps: []fileStamp{stamp}}, err
	}
	p, findings, f := parsePolicy(file, data, read)
	f.stamps, f.rules = append(f.stamps, stamp), p.Size()
	return p, findings, f, nil
}

// ParsePolicy is ReadPolicy of a file that was read already.
func ParsePolicy(file string, data []byte) (*policy.Policy, []policy.Finding) {
	p, findings, _ := parsePolicy(file, data, readBounded)
	return p, findings
}

func parsePolicy(file string, data []byte, read reader) (p *policy.Policy, findings []policy.Finding, f policyFile) {
	p, findings = policy.Read(file, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		f.stamps = append(f.stamps, stampOf(filepath.Clean(path)))
		return read(path, limit.PolicyList)
	})
	return p, findings, f
}

// PolicyLists are the lists of a file that was found good.
func PolicyLists(file string) ([]policy.List, error) {
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

// judgePolicies says what is wrong with files that other paths than those in force
// lead to. They have no last good content that could stay, and what they deny must
// not be open meanwhile. A file that is known is judged when it is read anew.
func (h *Hub) judgePolicies(paths []string) error {
	if slices.Equal(paths, h.settings.Load().policies) {
		return nil
	}
	h.policies.mu.Lock()
	defer h.policies.mu.Unlock()
	files, err := PolicyFiles(paths)
	errs := []error{err}
	for _, file := range files {
		_, seen := h.policies.seen[file]
		if _, refused := h.policies.refused[file]; seen || refused {
			continue
		}
		_, findings, _, err := readPolicy(file, h.policies.read)
		errs = append(errs, err, PolicyFault(file, findings))
	}
	return errors.Join(errs...)
}

// loadPolicies reads what has changed and puts it into force: of all files of the
// settings, or only of those that are named. A file with mistakes keeps its last
// good content; the others go on. Its error names every mistake.
func (h *Hub) loadPolicies(named ...string) error {
	h.policies.mu.Lock()
	defer h.policies.mu.Unlock()
	paths := h.settings.Load().policies // in turn with others, so that none puts old paths into force
	defer h.policies.count()
	files, gone, err := h.policies.look(paths, named)
	if err != nil { // a folder that is gone for a moment must not open or close anything
		h.metrics.PolicyReloads.WithLabelValues(outcome(fault.From(err))).Inc()
		return err
	}
	changed := map[string]*policy.Policy{}
	var refused policiesRefused
	for _, file := range files {
		if _, bad := h.policies.refused[file]; !bad && len(named) == 0 && h.policies.seen[file].fresh() {
			continue // one that is named was written, whatever its stamp says
		}
		p, findings, f, err := readPolicy(file, h.policies.read)
		if err == nil {
			h.warn(findings)
			err = PolicyFault(file, findings)
		}
		h.policies.uses(file, f)
		if err != nil {
			_, known := h.policies.seen[file]
			h.policies.refused[file] = admin.PolicyRefusal{File: file, Reason: oneLine(err), At: h.now().UTC(), New: !known}
			h.metrics.PolicyReloads.WithLabelValues(outcome(fault.From(err))).Inc()
			refused = append(refused, policyRefused{err, known})
			continue
		}
		h.policies.take(file, f)
		changed[file] = p
	}
	for _, file := range gone {
		if _, known := h.policies.seen[file]; known {
			changed[file] = nil
		}
		h.policies.forget(file)
	}
	if set := len(paths) > 0; len(changed) > 0 || set != h.access.configured() {
		h.cut(h.access.replace(set, changed))
		h.metrics.PolicyReloads.WithLabelValues(outcome(nil)).Inc()
		h.log.Info("policy loaded", "files", len(h.policies.seen), "changed", len(changed))
	}
	return refused.err()
}

// oneLine is a fault as a status shows it.
func oneLine(err error) string {
	return clip(strings.Join(strings.Fields(fault.From(err).Error()), " "), 400)
}

func (h *Hub) warn(findings []policy.Finding) {
	for _, f := range findings {
		if f.Warning {
			h.log.Warn("policy", telemetry.AttrReason, f.String())
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
