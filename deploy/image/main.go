// SPDX-License-Identifier: Apache-2.0

// Command image builds Tombolo's OCI image without a docker engine and without
// a registry: it cross-builds the static binary for each architecture and
// writes an OCI layout, as a tar, a directory or both. Two runs over the same
// commit give the same bytes. It does not push anything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options is the command line, as given.
type options struct {
	out      string // tar of the OCI layout
	dir      string // OCI layout as a directory
	arches   []string
	tag      string
	version  string
	pkg      string            // main package that is built
	license  string            // text of the license that the image carries
	binaries map[string]string // architecture to a binary that is taken as it is
	root     string            // of the module
	work     string            // a directory for what is built
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// usageError is a wrong command line.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

func run(ctx context.Context, args []string, log io.Writer) error {
	opt, err := parse(args, log)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	src, err := describeSource(ctx, root, os.Getenv)
	if err != nil {
		return err
	}
	if src.created.Unix() == 0 {
		fmt.Fprintln(log, "image: no SOURCE_DATE_EPOCH and no git commit: the image is dated 1970-01-01")
	}
	license, err := os.ReadFile(rooted(root, opt.license))
	if err != nil {
		return fmt.Errorf("cannot read the license that the image must carry: %w", err)
	}
	work, err := os.MkdirTemp("", "tombolo-image-")
	if err != nil {
		return fmt.Errorf("cannot make a working directory: %w", err)
	}
	defer os.RemoveAll(work)
	opt.root, opt.work = root, work

	var images []archImage
	for _, arch := range opt.arches {
		began := time.Now()
		binary, err := binaryFor(ctx, opt, arch, "")
		if err != nil {
			return err
		}
		controller, err := binaryFor(ctx, opt, arch, controllerSuffix)
		if err != nil {
			return err
		}
		if controller == nil {
			fmt.Fprintf(log, "image: linux/%s: there is no %s beside the given binary, and the image has none\n", arch,
				filepath.Base(opt.binaries[arch]+controllerSuffix))
		}
		img, err := newImage(arch, content{binary: binary, controller: controller, license: license}, opt.version, src)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		fmt.Fprintf(log, "image: linux/%s: binaries of %.1f MB (%.1f s)\n", arch,
			float64(len(binary)+len(controller))/1e6, time.Since(began).Seconds())
		images = append(images, archImage{arch, img})
	}
	places, err := write(ctx, opt, newIndex(images), work, src.created)
	for _, place := range places {
		fmt.Fprintf(log, "image: %s in %s\n", opt.tag, place)
	}
	return err
}

// parse reads the command line and refuses what cannot be meant.
func parse(args []string, log io.Writer) (options, error) {
	opt := options{binaries: map[string]string{}}
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	fs.SetOutput(log)
	var arches string
	fs.StringVar(&opt.out, "out", "", "write the OCI layout as a tar to this `FILE`")
	fs.StringVar(&opt.dir, "dir", "", "write the OCI layout to this new `DIRECTORY`")
	fs.StringVar(&arches, "arch", runtime.GOARCH, "`ARCHITECTURES`, separated by commas, such as amd64,arm64")
	fs.StringVar(&opt.tag, "tag", "tombolo.local/tombolo:dev", "full `NAME` of the image, with registry and tag")
	fs.StringVar(&opt.version, "version", "dev", "`VERSION` that the binary and the labels carry")
	fs.StringVar(&opt.pkg, "package", "./cmd/tombolo", "main `PACKAGE` that is built, seen from the module's root")
	fs.StringVar(&opt.license, "license", "LICENSE", "`FILE` with the license, seen from the module's root")
	fs.Func("binary", "take `ARCH=FILE`, and FILE-controller if it is there, instead of building; may be repeated", func(s string) error {
		arch, file, ok := strings.Cut(s, "=")
		if !ok || arch == "" || file == "" {
			return fmt.Errorf("want ARCH=FILE")
		}
		opt.binaries[arch] = file
		return nil
	})
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return opt, err
		}
		return opt, usageError{err}
	}
	if fs.NArg() > 0 {
		return opt, usagef("unexpected argument %q", fs.Arg(0))
	}
	if opt.out == "" && opt.dir == "" {
		return opt, usagef("nowhere to write: give --out FILE, --dir DIRECTORY or both")
	}
	if strings.ContainsAny(opt.version, " \t\n'\"") || opt.version == "" {
		return opt, usagef("--version %q: a version is one word without quotes", opt.version)
	}
	if _, err := name.NewTag(opt.tag, name.StrictValidation); err != nil {
		return opt, usagef("--tag: %v; a full name is like registry.example/tombolo:v1", err)
	}
	seen := map[string]bool{}
	for arch := range strings.SplitSeq(arches, ",") {
		if arch == "" || seen[arch] {
			return opt, usagef("--arch %q names an architecture twice, or none", arches)
		}
		if _, err := machineOf(arch); err != nil {
			return opt, usagef("--arch: %v", err)
		}
		seen[arch] = true
		opt.arches = append(opt.arches, arch)
	}
	for arch := range opt.binaries {
		if !seen[arch] {
			return opt, usagef("--binary %s=...: the architecture is not in --arch %s", arch, arches)
		}
	}
	return opt, nil
}

// write leaves the index where the command line wants it and names the places.
func write(ctx context.Context, opt options, idx v1.ImageIndex, work string, created time.Time) ([]string, error) {
	layout := filepath.Join(work, "layout")
	if err := writeLayout(layout, idx, opt.tag); err != nil {
		return nil, fmt.Errorf("cannot write the OCI layout: %w", err)
	}
	var places []string
	if opt.out != "" {
		if err := packLayout(ctx, layout, opt.out, created); err != nil {
			return places, fmt.Errorf("cannot write %s: %w", opt.out, err)
		}
		places = append(places, opt.out)
	}
	if opt.dir != "" {
		if err := placeLayout(layout, opt.dir); err != nil {
			return places, fmt.Errorf("cannot write %s: %w", opt.dir, err)
		}
		places = append(places, opt.dir)
	}
	return places, nil
}
