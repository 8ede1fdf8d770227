// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// versionVariable is the string in the main package that the linker sets.
const versionVariable = "main.version"

// controllerSuffix makes the name of the controller's program, package or file of that of tombolo.
const controllerSuffix = "-controller"

// binaryFor gives the static binary for one architecture: the given one, or one built from the module. With a
// suffix it is the program beside that one; beside a given one there may be none, and it is nil then.
func binaryFor(ctx context.Context, opt options, arch, suffix string) ([]byte, error) {
	file, given := opt.binaries[arch]
	file += suffix
	if !given {
		file = filepath.Join(opt.work, "tombolo"+suffix+"-"+arch)
		if err := build(ctx, opt, arch, opt.pkg+suffix, file); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(file); suffix != "" && errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("binary for %s: %w", arch, err)
	}
	if err := checkStatic(data, arch); err != nil {
		return nil, fmt.Errorf("binary for %s, %s: %w", arch, file, err)
	}
	return data, nil
}

// build cross-compiles the main package. Nothing of this machine goes into the
// result: no paths, no time, no state of the checkout.
func build(ctx context.Context, opt options, arch, pkg, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X "+versionVariable+"="+opt.version, "-o", file, pkg)
	cmd.Dir = opt.root
	// The instruction set below the architecture is the oldest: the image must run
	// anywhere, whatever the builder prefers for itself.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOPPC64=power8", "GORISCV64=rva20u64", "GOEXPERIMENT=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build of %s for linux/%s: %w\n%s", pkg, arch, err, strings.TrimSpace(out.String()))
	}
	return nil
}

// machineOf maps a Go architecture to what an ELF header calls it.
func machineOf(arch string) (elf.Machine, error) {
	switch arch {
	case "amd64":
		return elf.EM_X86_64, nil
	case "arm64":
		return elf.EM_AARCH64, nil
	case "ppc64le":
		return elf.EM_PPC64, nil
	case "riscv64":
		return elf.EM_RISCV, nil
	case "s390x":
		return elf.EM_S390, nil
	}
	return elf.EM_NONE, fmt.Errorf("architecture %q is not one of amd64, arm64, ppc64le, riscv64, s390x", arch)
}

// checkStatic refuses a binary that would not start in an image with nothing
// else in it: another architecture, or one that asks for a dynamic loader.
func checkStatic(data []byte, arch string) error {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("not a Linux executable: %w", err)
	}
	want, err := machineOf(arch)
	if err != nil {
		return err
	}
	if f.Machine != want {
		return fmt.Errorf("it is for another machine, %s, not %s", f.Machine, arch)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fmt.Errorf("it is of type %s, not an executable", f.Type)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("it needs a dynamic loader: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
