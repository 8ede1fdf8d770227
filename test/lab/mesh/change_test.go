// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// change changes the configuration of a node that runs, as its user does: a new file takes
// the place of the old one, and the node notices.
func (n *node) change(how func(whole map[string]any)) {
	n.rig.t.Helper()
	loaded := n.said("configuration loaded")
	n.edit(how)
	n.rig.eventually(n.name+" has loaded its configuration", n.role, func() error {
		if n.said("configuration loaded") == loaded {
			return errNotYet
		}
		return nil
	})
}

// edit changes the configuration of a node that does not run.
func (n *node) edit(how func(whole map[string]any)) {
	n.rig.t.Helper()
	file := filepath.Join(n.dir, "mesh.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		n.rig.t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(text, &whole); err != nil {
		n.rig.t.Fatal(err)
	}
	how(whole)
	if text, err = json.MarshalIndent(whole, "", "  "); err != nil {
		n.rig.t.Fatal(err)
	}
	replace(n.rig, file, string(text)+"\n")
}

// replace puts a file in the place of another one in one step.
func replace(r *rig, file, text string) {
	r.t.Helper()
	next := file + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, file)); err != nil {
		r.t.Fatal(err)
	}
}

// section is one of a configuration.
func section(whole map[string]any, name string) map[string]any {
	return whole[name].(map[string]any)
}
