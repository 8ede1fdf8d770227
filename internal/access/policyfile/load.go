// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/confdir"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func words() confdir.Words {
	return confdir.Words{
		One: "policy", Many: "policies", All: "policy", Setting: "policies", Check: "tombolo policy check",
	}
}

// List lists the files that paths name: files themselves, and in folders what ends in .yaml or .yml
// and is not hidden, without subfolders.
func List(paths []string) ([]string, error) { return confdir.List(paths, words()) }

// Read compiles one file with its lists; the policy is nil if a finding is more than a warning.
func Read(file string) (*policy.Policy, []policy.Finding, error) { return read(file, readBounded) }

func read(file string, read confdir.Reader) (*policy.Policy, []policy.Finding, error) {
	data, err := read(file, limit.ConfigFile)
	if err != nil {
		return nil, nil, words().Unreadable(file, err)
	}
	p, findings := policy.Read(file, data, lists(file, read))
	return p, findings, nil
}

// Parse is Read of a file that was read already.
func Parse(file string, data []byte) (*policy.Policy, []policy.Finding) {
	return policy.Read(file, data, lists(file, readBounded))
}

// Lists are the lists of a file that was found good.
func Lists(file string) ([]policy.List, error) {
	data, err := readBounded(file, limit.ConfigFile)
	if err != nil {
		return nil, fault.Newf(fault.CodeConfig, "the policy %s cannot be read", file).Because(err)
	}
	return policy.Lists(file, data, lists(file, readBounded)), nil
}

// lists reads the lists that a file names, by their paths from its folder.
func lists(file string, read confdir.Reader) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		return read(path, limit.PolicyList)
	}
}

func readBounded(path string, most int64) ([]byte, error) { return confdir.ReadDisk(path, most) }

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
