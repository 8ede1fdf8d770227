// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
)

// The form of a bbolt file, version 2. Numbers are in the machine's byte order.
//
//	page     id u64 | flags u16 | count u16 | overflow u32 | elements | keys and values
//	meta     magic u32 | version u32 | page size u32 | flags u32 | root u64 | sequence u64 |
//	         freelist u64 | pages u64 | transaction u64 | FNV-1a of all that u64
//	branch   pos u32 | key length u32 | child u64          (pos counts from the element)
//	leaf     flags u32 | pos u32 | key length u32 | value length u32
//	bucket   root u64 | sequence u64 | with root 0: a leaf page with the content
const (
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	headLength    = 16
	elementLength = 16
	metaLength    = 64
	flagBranch    = 1
	flagLeaf      = 2
	flagFree      = 16
	firstPage     = 2  // after the two metas
	mostDepth     = 64 // of pages; a tree of that height has more than any disk holds
)

// checker walks all pages that the newest meta page leads to, with ordinary
// reads and nothing taken on trust.
type checker struct {
	file     io.ReaderAt
	pageSize uint64
	pages    uint64          // how many the file has in use
	used     map[uint64]bool // pages seen, each of which may have one owner
}

type boltMeta struct{ pageSize, root, freelist, pages, transaction uint64 }

// checkFile refuses a file on which bbolt could panic or leave the map. An empty
// file is one that bbolt is about to fill.
func checkFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	m, err := newestMeta(file, info.Size())
	if err != nil {
		return err
	}
	if m.pages < firstPage || m.pages > uint64(info.Size())/m.pageSize {
		return fmt.Errorf("it has %d bytes, too few for %d pages", info.Size(), m.pages)
	}
	c := &checker{file, m.pageSize, m.pages, map[uint64]bool{}}
	if err := c.tree(node{id: m.root, top: true}); err != nil {
		return err
	}
	return c.freelist(m.freelist)
}

// newestMeta finds the valid meta page with the highest transaction.
func newestMeta(file io.ReaderAt, size int64) (newest boltMeta, err error) {
	found := false
	try := func(at int64) {
		raw := make([]byte, headLength+metaLength)
		if n, _ := file.ReadAt(raw, at); n < len(raw) {
			return
		}
		m, ok := readMeta(raw[headLength:])
		if ok && (!found || m.transaction > newest.transaction) {
			newest, found = m, true
		}
	}
	try(0)
	if found {
		try(int64(newest.pageSize))
		return newest, nil
	}
	for at := int64(1024); at <= 64<<10 && at < size && !found; at *= 2 {
		try(at)
	}
	if !found {
		return newest, errors.New("it has no valid first page")
	}
	return newest, nil
}

func readMeta(raw []byte) (m boltMeta, ok bool) {
	order := binary.NativeEndian
	hash := fnv.New64a()
	hash.Write(raw[:metaLength-8])
	size := order.Uint32(raw[8:])
	m = boltMeta{uint64(size), order.Uint64(raw[16:]), order.Uint64(raw[32:]), order.Uint64(raw[40:]),
		order.Uint64(raw[48:])}
	ok = order.Uint32(raw) == boltMagic && order.Uint32(raw[4:]) == boltVersion &&
		order.Uint64(raw[56:]) == hash.Sum64() &&
		size >= 1024 && size <= 64<<10 && size&(size-1) == 0
	return m, ok
}

// load reads a page with its overflow and claims it.
func (c *checker) load(id uint64) (raw []byte, flags uint16, err error) {
	bad := func(why string) ([]byte, uint16, error) { return nil, 0, fmt.Errorf("page %d %s", id, why) }
	if id < firstPage || id >= c.pages {
		return bad("does not exist")
	}
	head := make([]byte, headLength)
	if _, err := c.file.ReadAt(head, int64(id*c.pageSize)); err != nil {
		return nil, 0, err
	}
	span := uint64(binary.NativeEndian.Uint32(head[12:])) + 1
	if binary.NativeEndian.Uint64(head) != id || span > c.pages-id {
		return bad("is damaged")
	}
	for i := range span {
		if c.used[id+i] {
			return bad("is used twice")
		}
		c.used[id+i] = true
	}
	raw = make([]byte, span*c.pageSize)
	if _, err := c.file.ReadAt(raw, int64(id*c.pageSize)); err != nil {
		return nil, 0, err
	}
	return raw, binary.NativeEndian.Uint16(head[8:]), nil
}

// node is a page of a tree as its parent sees it. The top tree holds buckets
// and nothing else, and a bucket holds none.
type node struct {
	id        uint64
	low, high []byte // keys are at least low and below high; nil: no bound
	depth     int
	top       bool
}

func (c *checker) tree(n node) error {
	raw, flags, err := c.load(n.id)
	if err != nil {
		return err
	}
	damaged := fmt.Errorf("page %d is damaged", n.id)
	all, ok := elements(raw, flags)
	if !ok || n.depth > mostDepth || len(all) == 0 && (n.depth > 0 || flags == flagBranch) ||
		!inOrder(all, n.low, n.high) {
		return damaged
	}
	for i, e := range all {
		switch {
		case flags == flagBranch:
			below := node{e.child, e.key, n.high, n.depth + 1, n.top}
			if i+1 < len(all) {
				below.high = all[i+1].key
			}
			err = c.tree(below)
		case e.bucket != n.top:
			err = damaged
		case e.bucket:
			err = c.bucket(e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func inOrder(all []element, low, high []byte) bool {
	for i, e := range all {
		if i == 0 && bytes.Compare(e.key, low) < 0 || i > 0 && bytes.Compare(e.key, all[i-1].key) <= 0 ||
			high != nil && bytes.Compare(e.key, high) >= 0 {
			return false
		}
	}
	return true
}

// bucket checks a bucket, which stands on pages of its own or, if it is small, within its value.
func (c *checker) bucket(value []byte) error {
	damaged := errors.New("a bucket is damaged")
	if len(value) < headLength {
		return damaged
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.tree(node{id: root})
	}
	inline := value[headLength:]
	if len(inline) < headLength || binary.NativeEndian.Uint16(inline[8:]) != flagLeaf {
		return damaged
	}
	all, ok := elements(inline, flagLeaf)
	if !ok || !inOrder(all, nil, nil) || slices.ContainsFunc(all, func(e element) bool { return e.bucket }) {
		return damaged
	}
	return nil
}

type element struct {
	key, value []byte
	bucket     bool
	child      uint64 // of a branch
}

// elements reads the elements of a branch or leaf page within its bytes. Keys and
// values follow the table without a gap, and an empty page holds zeros: both show
// a count that is wrong.
func elements(raw []byte, flags uint16) (out []element, ok bool) {
	order := binary.NativeEndian
	count := int(order.Uint16(raw[10:]))
	table := headLength + count*elementLength
	if flags != flagBranch && flags != flagLeaf || table > len(raw) {
		return nil, false
	}
	if count == 0 {
		return nil, len(bytes.Trim(raw[headLength:], "\x00")) == 0
	}
	start := uint64(table)
	for i := range count {
		at := headLength + i*elementLength
		e := raw[at:]
		var pos, ksize, vsize uint64
		var el element
		if flags == flagBranch {
			pos, ksize, el.child = uint64(order.Uint32(e)), uint64(order.Uint32(e[4:])), order.Uint64(e[8:])
		} else {
			pos, ksize, vsize = uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:])), uint64(order.Uint32(e[12:]))
			if order.Uint32(e) > 1 {
				return nil, false
			}
			el.bucket = order.Uint32(e) == 1
		}
		if ksize == 0 || uint64(at)+pos != start || start+ksize+vsize > uint64(len(raw)) {
			return nil, false
		}
		el.key, el.value = raw[start:start+ksize], raw[start+ksize:start+ksize+vsize]
		out, start = append(out, el), start+ksize+vsize
	}
	return out, true
}

// freelist checks the list of free pages: in order, each once, none in use.
func (c *checker) freelist(id uint64) error {
	raw, flags, err := c.load(id)
	if err != nil {
		return err
	}
	damaged := fmt.Errorf("the list of free pages (page %d) is damaged", id)
	count, at := uint64(binary.NativeEndian.Uint16(raw[10:])), uint64(headLength)
	if count == 0xFFFF { // the number stands first
		count, at = binary.NativeEndian.Uint64(raw[at:]), at+8
	}
	if flags != flagFree || count > (uint64(len(raw))-at)/8 {
		return damaged
	}
	last := uint64(firstPage - 1)
	for i := range count {
		free := binary.NativeEndian.Uint64(raw[at+8*i:])
		if free <= last || free >= c.pages || c.used[free] {
			return damaged
		}
		last = free
	}
	return nil
}
