// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// entry is a file of an initramfs.
type entry struct {
	name string // without the first slash
	mode os.FileMode
	data []byte // of a file
	from string // in place of data: a file of this machine
}

// The kinds of files in the mode of cpio.
const (
	cpioFolder = 0o040000
	cpioFile   = 0o100000
)

// writeInitramfs writes an archive of the form "newc", as the kernel unpacks it, with the
// folders above the files, and not compressed: the guest is slow, and its memory is not.
func writeInitramfs(w io.Writer, entries []entry) error {
	c := cpio{w: w, number: 1}
	var made []string
	for _, e := range entries {
		for _, dir := range above(e.name) {
			if !slices.Contains(made, dir) {
				made = append(made, dir)
				c.header(dir, cpioFolder|0o755, 0)
			}
		}
		c.file(e)
	}
	c.header("TRAILER!!!", 0, 0)
	return c.err
}

// above are the folders in which a file is, the outermost first.
func above(name string) []string {
	var out []string
	for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
		out = append([]string{dir}, out...)
	}
	return out
}

// cpio writes an archive. After the first error it does nothing.
type cpio struct {
	w      io.Writer
	number int // of the next file
	err    error
}

func (c *cpio) header(name string, mode, size int64) {
	// inode, mode, owner, group, links, time, size, device, device of a node, length of the name, checksum
	fields := []int64{int64(c.number), mode, 0, 0, 1, 0, size, 0, 0, 0, 0, int64(len(name) + 1), 0}
	var head strings.Builder
	head.WriteString("070701")
	for _, f := range fields {
		fmt.Fprintf(&head, "%08X", f)
	}
	head.WriteString(name + "\x00")
	c.number++
	c.write(strings.NewReader(head.String()), int64(head.Len()))
}

func (c *cpio) file(e entry) {
	if e.from == "" {
		c.header(e.name, cpioFile|int64(e.mode.Perm()), int64(len(e.data)))
		c.write(strings.NewReader(string(e.data)), int64(len(e.data)))
		return
	}
	f, err := os.Open(e.from)
	if err != nil {
		c.fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		c.fail(err)
		return
	}
	c.header(e.name, cpioFile|int64(e.mode.Perm()), info.Size())
	c.write(f, info.Size())
}

// write writes so many bytes, and zeros up to a multiple of 4.
func (c *cpio) write(r io.Reader, size int64) {
	if c.err != nil {
		return
	}
	if _, err := io.CopyN(c.w, r, size); err != nil {
		c.fail(err)
		return
	}
	_, err := c.w.Write(make([]byte, (4-size%4)%4))
	c.fail(err)
}

func (c *cpio) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}
