// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// inOrder puts modules behind those that they need: needs returns the names of these. Names are
// the kernel's, with underscores, each once. A module that needs itself by others is an error.
func inOrder(wanted []string, needs func(string) ([]string, error)) ([]string, error) {
	var out []string
	var under []string // what is looked at, from the wanted one on
	var visit func(string) error
	visit = func(name string) error {
		switch {
		case slices.Contains(out, name):
			return nil
		case slices.Contains(under, name):
			return fmt.Errorf("the modules %s need each other", strings.Join(append(under, name), ", "))
		}
		under = append(under, name)
		below, err := needs(name)
		if err != nil {
			return err
		}
		for _, n := range below {
			if err := visit(moduleName(n)); err != nil {
				return err
			}
		}
		under = under[:len(under)-1]
		out = append(out, name)
		return nil
	}
	for _, name := range wanted {
		if err := visit(moduleName(name)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moduleName is the kernel's name of a module, of which files and people have variants.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}

// modinfo is what a module's file says of itself.
type modinfo struct {
	needs   []string // other modules
	aliases []string // by which the kernel asks for it
}

func readModinfo(file io.ReaderAt) (modinfo, error) {
	module, err := elf.NewFile(file)
	if err != nil {
		return modinfo{}, err
	}
	section := module.Section(".modinfo")
	if section == nil {
		return modinfo{}, errors.New("it has no section .modinfo")
	}
	data, err := section.Data()
	if err != nil {
		return modinfo{}, err
	}
	return parseModinfo(data), nil
}

// parseModinfo reads the words of .modinfo, each of which ends with a zero: depends=a,b and
// alias=c are among them.
func parseModinfo(section []byte) (m modinfo) {
	for word := range bytes.SplitSeq(section, []byte{0}) {
		field, value, _ := strings.Cut(string(word), "=")
		switch field {
		case "depends":
			m.needs = strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
		case "alias":
			m.aliases = append(m.aliases, value)
		}
	}
	return m
}

// builtIn are the names in a file modules.builtin.
func builtIn(list io.Reader) (map[string]bool, error) {
	names := map[string]bool{}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		names[moduleName(lines.Text())] = true
	}
	return names, lines.Err()
}
