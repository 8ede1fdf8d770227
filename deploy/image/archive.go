// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeLayout writes an OCI layout whose one entry is the index, under the
// names that the tools look for: containerd reads io.containerd.image.name,
// skopeo and podman read the tag in org.opencontainers.image.ref.name.
func writeLayout(dir string, idx v1.ImageIndex, fullName string) error {
	ref, err := name.NewTag(fullName, name.StrictValidation)
	if err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(idx, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          fullName,
		"org.opencontainers.image.ref.name": ref.TagStr(),
	}))
}

// packLayout packs the layout into a tar: sorted, dated, owned by nobody in
// particular, and complete before it takes its name.
func packLayout(ctx context.Context, dir, out string, created time.Time) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	defer tmp.Close()

	w := tar.NewWriter(tmp)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return packFile(w, dir, path, created)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), out)
}

func packFile(w *tar.Writer, dir, path string, created time.Time) error {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644, ModTime: created, Format: tar.FormatUSTAR}
	if info.IsDir() {
		h.Typeflag, h.Mode = tar.TypeDir, 0o755
		h.Name += "/"
		return w.WriteHeader(h)
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// placeLayout copies the layout to a directory that must not exist or be
// empty: what lies there may not be ours.
func placeLayout(from, to string) error {
	there, err := os.ReadDir(to)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("the directory is not empty; remove it or name another")
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}
