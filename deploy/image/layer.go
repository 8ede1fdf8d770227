// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user and group of the container: the number that distroless
// images use and that kube-apiserver often runs as, so that the hub's sockets
// are within its reach.
const nonroot = 65532

const passwd = `root:x:0:0:root:/:/sbin/nologin
nobody:x:65534:65534:nobody:/:/sbin/nologin
nonroot:x:65532:65532:nonroot:/var/lib/tombolo:/sbin/nologin
`

const group = `root:x:0:
nobody:x:65534:
nonroot:x:65532:
`

// content is what differs between images, or comes from the checkout.
type content struct {
	binary     []byte
	controller []byte // nil: there is none
	license    []byte
}

// entry is one file or, with a final slash in its name, one directory. With a mode of 0 it is a symbolic link, and data
// is where it leads.
type entry struct {
	name  string
	mode  int64
	owner int
	data  []byte
}

// program is where the program is.
const program = "usr/local/bin/tombolo"

// entries lists the whole file system of the image, parents first. It has no
// CA certificates: Tombolo trusts the CA whose hash is in the join line only.
func entries(c content) []entry {
	out := []entry{
		{"etc/", 0o755, 0, nil},
		{"etc/group", 0o644, 0, []byte(group)},
		{"etc/passwd", 0o644, 0, []byte(passwd)},
		{"run/", 0o755, 0, nil},
		{"run/tombolo/", 0o755, nonroot, nil},
		{"tmp/", 0o1777, nonroot, nil},
		{"usr/", 0o755, 0, nil},
		{"usr/local/", 0o755, 0, nil},
		{"usr/local/bin/", 0o755, 0, nil},
		{program, 0o755, 0, c.binary},
		{"usr/share/", 0o755, 0, nil},
		{"usr/share/doc/", 0o755, 0, nil},
		{"usr/share/doc/tombolo/", 0o755, 0, nil},
		{"usr/share/doc/tombolo/LICENSE", 0o644, 0, c.license},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		{"var/lib/tombolo/", 0o755, nonroot, nil}, // root without its rights passes it too: the mesh
		// Who deploys konnectivity chooses the image, and starts these in it.
		{"proxy-agent", 0, 0, []byte(program)},
		{"proxy-server", 0, 0, []byte(program)},
	}
	if c.controller != nil {
		out = append(out, entry{"usr/local/bin/tombolo-controller", 0o755, 0, c.controller})
	}
	return out
}

// newLayer packs the file system. Dates and owners are the same everywhere, so
// the digest depends on the content alone.
func newLayer(c content, created time.Time) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, e := range entries(c) {
		if err := w.WriteHeader(header(e, created)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if e.mode == 0 {
			continue
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching,
		tarball.WithMediaType(types.OCILayer))
}

func header(e entry, created time.Time) *tar.Header {
	h := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     e.name,
		Mode:     e.mode,
		Uid:      e.owner,
		Gid:      e.owner,
		Size:     int64(len(e.data)),
		ModTime:  created,
		Format:   tar.FormatUSTAR,
	}
	switch {
	case e.name[len(e.name)-1] == '/':
		h.Typeflag = tar.TypeDir
	case e.mode == 0:
		h.Typeflag, h.Linkname, h.Size, h.Mode = tar.TypeSymlink, "/"+string(e.data), 0, 0o777
	}
	return h
}
