// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// cloud is Debian's package that needs the newest kernel for clouds.
const cloud = "linux-image-cloud-amd64"

// kernel is one that is unpacked.
type kernel struct {
	image   string
	modules map[string]string // files by the kernel's names
	within  map[string]bool   // those that are built in
}

// Fetch unpacks Debian's kernel into the cache, unless one is there, and returns the folder. It
// installs nothing. Lists of packages that do not have the kernel are fetched first.
func Fetch(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	there, err := filepath.Glob(filepath.Join(cache, "linux-image-*", "boot", "vmlinuz-*"))
	if err != nil || len(there) > 0 {
		slices.Sort(there)
		return filepath.Dir(filepath.Dir(append(there, "")[max(0, len(there)-1)])), err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	name, err := newest(ctx)
	if err != nil {
		return "", err
	}
	if _, err := command(ctx, work, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name); err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("apt-get download %s left %q: %w", name, debs, err)
	}
	root := filepath.Join(work, "root")
	if err := unpack(ctx, debs[0], root); err != nil {
		return "", fmt.Errorf("unpacking %s: %w", filepath.Base(debs[0]), err)
	}
	dir := filepath.Join(cache, strings.TrimSuffix(filepath.Base(debs[0]), ".deb"))
	if err := os.Rename(root, dir); err != nil && !errors.Is(err, os.ErrExist) { // another run may have been first
		return "", err
	}
	return dir, nil
}

// cacheDir is the part of the suite's cache for kernels.
func cacheDir() (string, error) {
	if dir := os.Getenv("TOMBOLO_CACHE"); dir != "" {
		dir, err := filepath.Abs(dir)
		return filepath.Join(dir, "qemu"), err
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".cache", "tombolo", "qemu"), err
}

var aKernel = regexp.MustCompile(`(?m)^ *Depends: (linux-image-[0-9]\S*)$`)

// newest is the package of the kernel that the cloud's needs.
func newest(ctx context.Context) (string, error) {
	for _, update := range []bool{false, true} {
		if update {
			if _, err := command(ctx, "/", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "update"); err != nil {
				return "", err
			}
		}
		out, err := command(ctx, "/", "apt-cache", "depends", cloud)
		if found := aKernel.FindStringSubmatch(out); err == nil && found != nil {
			return found[1], nil
		}
	}
	return "", fmt.Errorf("apt knows no package %s: QEMU's guests need Debian and its packages", cloud)
}

// unpack takes the kernel and its modules out of a package.
func unpack(ctx context.Context, deb, root string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = extract(tar.NewReader(out), root)
	if err != nil {
		cancel() // it writes on otherwise
	}
	return errors.Join(err, cmd.Wait())
}

func extract(files *tar.Reader, root string) error {
	for {
		h, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(h.Name)
		base := filepath.Base(name)
		wanted := strings.HasPrefix(base, "vmlinuz-") || strings.HasSuffix(base, ".ko") || base == "modules.builtin"
		if h.Typeflag != tar.TypeReg || !wanted || !filepath.IsLocal(name) {
			continue
		}
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		data, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return err
		}
	}
}

// openKernel finds what is in a folder of Fetch.
func openKernel(dir string) (kernel, error) {
	k := kernel{modules: map[string]string{}, within: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(d.Name(), "vmlinuz-"):
			k.image = path
		case strings.HasSuffix(d.Name(), ".ko"):
			k.modules[moduleName(path)] = path
		case d.Name() == "modules.builtin":
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			k.within, err = builtIn(bytes.NewReader(data))
			return err
		}
		return nil
	})
	if err == nil && (k.image == "" || len(k.modules) == 0) {
		err = fmt.Errorf("no kernel with modules is in %s: remove it, and it is fetched again", dir)
	}
	return k, err
}

// needs are the modules that one needs, for inOrder.
func (k kernel) needs(name string) ([]string, error) {
	if k.within[name] {
		return nil, nil
	}
	m, err := k.modinfo(name)
	return m.needs, err
}

func (k kernel) modinfo(name string) (modinfo, error) {
	path := k.modules[name]
	if path == "" {
		return modinfo{}, fmt.Errorf("the kernel %s has no module %s", filepath.Base(k.image), name)
	}
	f, err := os.Open(path)
	if err != nil {
		return modinfo{}, err
	}
	defer f.Close()
	m, err := readModinfo(f)
	if err != nil {
		return modinfo{}, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// files are those of modules and of what they need, in order.
func (k kernel) files(wanted []string) ([]string, error) {
	names, err := inOrder(wanted, k.needs)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		if !k.within[name] {
			out = append(out, k.modules[name])
		}
	}
	return out, nil
}

// command runs a program and returns what it prints.
func command(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C", "CGO_ENABLED=0")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}
