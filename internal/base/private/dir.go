// SPDX-License-Identifier: Apache-2.0

package private

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// StateDir makes sure that the state directory is private, before anything in it is
// trusted: a key that others could have put there is not secret. A directory that others
// can only read is set to mode 0700, with a warning. A directory that does not exist is
// not a fault: the first write creates it.
func StateDir(path string, log *slog.Logger) error {
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fault.New(fault.CodeStateAccess, "the state directory "+path+" cannot be used").Because(err).
			Hint("create it for this user (uid %d), or choose another with --state-dir (stateDir)", os.Geteuid())
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return err
	}
	s, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return nil
	}
	dir := folder{mode: info.Mode(), uid: int(s.Uid), gid: int(s.Gid), mounted: mounted(d)}
	narrow, why := dir.judge(os.Geteuid(), os.Getegid())
	switch {
	case why != "":
		return fault.New(fault.CodeStateAccess, "the state directory "+path+" is not used").
			Whyf("its mode is %04o, its owner uid %d and gid %d: %s", unixMode(dir.mode), dir.uid, dir.gid, why).
			Hint("see that nobody has changed what is in it, then: chown %d %s && chmod 700 %s; "+
				"or choose another with --state-dir (stateDir)", os.Geteuid(), path, path)
	case narrow:
		if err := d.Chmod(0o700); err != nil { // of the directory that was checked, even if the path leads elsewhere now
			return fault.New(fault.CodeStateAccess, "the state directory "+path+" cannot be closed to others").
				Because(err).Hint("chmod 700 %s", path)
		}
		log.Warn("the state directory was open to others; its mode is 0700 now", "path", path,
			"mode", fmt.Sprintf("%04o", unixMode(dir.mode)))
	}
	return nil
}

// Narrow sets a directory to mode 0700. It does not follow a symbolic link, whose owner
// could make us change another directory.
func Narrow(path string) error {
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.Chmod(0o700), d.Close())
}

// folder has the attributes of a directory.
type folder struct {
	mode     fs.FileMode
	uid, gid int
	mounted  bool // it is a mount point
}

// judge reports whether to narrow a state directory, or why to refuse it. uid and gid are
// those of this process.
//
//	a volume, root's              used as it is: a pod has it for itself, and kubelet opens it
//	ours, setgid for our group    the same, of a directory in such a volume
//	another user's                refused, except root's: root may write everywhere
//	others or a group may write   refused
//	ours, and others may read     narrowed
func (d folder) judge(uid, gid int) (narrow bool, refuse string) {
	perm := d.mode.Perm()
	switch {
	case d.mounted && d.uid == 0 && uid != 0:
		return false, ""
	case d.uid != uid && d.uid != 0:
		return false, "another user owns it, and could have written to it"
	case perm&0o002 != 0:
		return false, "everybody could have written to it"
	case d.gid == gid && d.mode&fs.ModeSetgid != 0:
		return false, ""
	case perm&0o020 != 0:
		return false, "its group could have written to it"
	}
	return d.uid == uid && perm&0o077 != 0, ""
}

// mounted reports whether a directory is a mount point; false on kernels before 5.8, which
// do not report it.
func mounted(d *os.File) bool {
	var s unix.Statx_t
	err := unix.Statx(int(d.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &s)
	return err == nil && s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// unixMode is a mode in the form of chmod.
func unixMode(m fs.FileMode) uint32 {
	out := uint32(m.Perm())
	for bit, is := range map[uint32]fs.FileMode{
		unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky,
	} {
		if m&is != 0 {
			out |= bit
		}
	}
	return out
}
