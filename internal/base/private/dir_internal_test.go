// SPDX-License-Identifier: Apache-2.0

package private

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestJudgeOfStateDirectories: we are user 5 of group 7.
func TestJudgeOfStateDirectories(t *testing.T) {
	for _, c := range []struct {
		what     string
		mode     fs.FileMode
		uid, gid int
		mounted  bool
		narrow   bool
		refuse   string
	}{
		{"ours", 0o700, 5, 7, false, false, ""},
		{"others may look", 0o755, 5, 7, false, true, ""},
		{"the group may look", 0o750, 5, 7, false, true, ""},
		{"others may pass", 0o711, 5, 7, false, true, ""},
		{"the group may write", 0o770, 5, 7, false, false, "group"},
		{"everybody may write", 0o777, 5, 7, false, false, "everybody"},
		{"everybody may write, as in /tmp", 0o777 | fs.ModeSticky, 5, 7, false, false, "everybody"},
		{"another user's", 0o700, 6, 7, false, false, "another user"},
		{"another user's volume", 0o700, 6, 7, true, false, "another user"},
		{"root's", 0o755, 0, 0, false, false, ""},
		{"root's, and the group writes", 0o770, 0, 7, false, false, "group"},
		{"Kubernetes: a volume with an fsGroup", 0o770 | fs.ModeSetgid, 0, 7, true, false, ""},
		{"Kubernetes: an emptyDir with an fsGroup", 0o777 | fs.ModeSetgid, 0, 7, true, false, ""},
		{"Kubernetes: a volume of a folder of the node", 0o777, 0, 0, true, false, ""},
		{"Kubernetes: our folder in a volume, opened to the fsGroup", 0o770 | fs.ModeSetgid, 5, 7, false, false, ""},
		{"setgid for another group", 0o770 | fs.ModeSetgid, 5, 8, false, false, "group"},
		{"our own mount, open to all", 0o777, 5, 7, true, false, "everybody"},
	} {
		narrow, refuse := folder{c.mode, c.uid, c.gid, c.mounted}.judge(5, 7)
		if narrow != c.narrow || (refuse == "") != (c.refuse == "") || !strings.Contains(refuse, c.refuse) {
			t.Errorf("%s: %v, %q", c.what, narrow, refuse)
		}
	}
	if _, refuse := (folder{0o777, 0, 0, true}).judge(0, 0); refuse == "" {
		t.Error("root is in no pod by that alone: a mount that all may write is used")
	}
}

func TestNarrowFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	if err := Narrow(link); err == nil {
		t.Error("a link is narrowed")
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o755 {
		t.Errorf("what it leads to is %v", info.Mode())
	}
	if err := Narrow(dir); err != nil {
		t.Error(err)
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v", info.Mode())
	}
}

func TestStateDir(t *testing.T) {
	at := func(mode fs.FileMode) string {
		dir := filepath.Join(t.TempDir(), "state")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, c := range []struct {
		mode   fs.FileMode
		warned bool
		code   fault.Code
	}{
		{0o700, false, ""}, {0o755, true, ""}, {0o750, true, ""},
		{0o770, false, fault.CodeStateAccess}, {0o702, false, fault.CodeStateAccess},
	} {
		var said bytes.Buffer
		dir := at(c.mode)
		err := StateDir(dir, slog.New(slog.NewTextHandler(&said, nil)))
		warned := strings.Contains(said.String(), fmt.Sprintf("mode=%04o", c.mode))
		info, _ := os.Stat(dir)
		switch {
		case c.code != "":
			text := fault.From(err).Explain()
			if !fault.Has(err, c.code) || !strings.Contains(text, "chmod 700 "+dir) || info.Mode().Perm() != c.mode {
				t.Errorf("%04o: %v, and is %v", c.mode, err, info.Mode())
			}
		case err != nil || info.Mode().Perm() != 0o700 || warned != c.warned:
			t.Errorf("%04o: %v, and is %v, warned: %s", c.mode, err, info.Mode(), said.String())
		}
	}
	if err := StateDir(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("there is none yet: %v", err)
	}
	if os.Geteuid() == 0 {
		dir := at(0o700)
		if err := os.Chown(dir, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if err := StateDir(dir, slog.New(slog.DiscardHandler)); !fault.Has(err, fault.CodeStateAccess) {
			t.Errorf("another user's: %v", err)
		}
	}
}
