// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const (
	testTag     = "tombolo.local/tombolo:dev"
	testEpoch   = "1700000000"
	testVersion = "v0.0.1-test"
	standin     = "./deploy/image/testdata/standin"
)

// buildImage runs the program as the command line would and gives its log.
func buildImage(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", testEpoch)
	license := filepath.Join(t.TempDir(), "LICENSE")
	if err := os.WriteFile(license, []byte("the license\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--tag", testTag, "--version", testVersion, "--license", license, "--package", standin}, args...)
	var log bytes.Buffer
	if err := run(t.Context(), args, &log); err != nil {
		t.Fatalf("image %s: %v\n%s", strings.Join(args, " "), err, log.String())
	}
	return log.String()
}

func TestImageSaysWhatItIs(t *testing.T) {
	arches := []string{"amd64", "arm64"}
	dir := filepath.Join(t.TempDir(), "layout")
	buildImage(t, "--arch", strings.Join(arches, ","), "--dir", dir)

	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != 1 || m.Manifests[0].MediaType != types.OCIImageIndex {
		t.Fatalf("index.json lists %+v, want one OCI index", m.Manifests)
	}
	for key, want := range map[string]string{
		"io.containerd.image.name":          testTag,
		"org.opencontainers.image.ref.name": "dev",
	} {
		if got := m.Manifests[0].Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	idx, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(idx); err != nil {
		t.Errorf("the index is not valid: %v", err)
	}
	inner, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range inner.Manifests {
		got = append(got, d.Platform.Architecture)
		img, err := idx.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkConfig(t, img, d.Platform.Architecture)
		checkFiles(t, img, d.Platform.Architecture)
	}
	if !slices.Equal(got, arches) {
		t.Errorf("the index has %v, want %v", got, arches)
	}
}

func checkConfig(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.OS != "linux" || cfg.Architecture != arch {
		t.Errorf("%s: configuration is for %s/%s", arch, cfg.OS, cfg.Architecture)
	}
	if cfg.Config.User != "65532:65532" {
		t.Errorf("%s: user is %q, want 65532:65532", arch, cfg.Config.User)
	}
	if !slices.Equal(cfg.Config.Entrypoint, []string{"/usr/local/bin/tombolo"}) || len(cfg.Config.Cmd) != 0 {
		t.Errorf("%s: entrypoint %q and command %q", arch, cfg.Config.Entrypoint, cfg.Config.Cmd)
	}
	if got := cfg.Created.Unix(); got != 1700000000 {
		t.Errorf("%s: created at %d, want SOURCE_DATE_EPOCH", arch, got)
	}
	if got := cfg.Config.Labels["org.opencontainers.image.version"]; got != testVersion {
		t.Errorf("%s: label version is %q", arch, got)
	}
	if got := cfg.Config.Labels["org.opencontainers.image.licenses"]; got != "Apache-2.0" {
		t.Errorf("%s: label licenses is %q", arch, got)
	}
}

// checkFiles reads the layer as a runtime would unpack it.
func checkFiles(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 {
		t.Fatalf("%s: %d layers, want 1", arch, len(layers))
	}
	rc, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	files, contents := readTar(t, rc)

	for name, want := range map[string]struct {
		mode  int64
		owner int
	}{
		"usr/local/bin/tombolo":            {0o755, 0},
		"usr/local/bin/tombolo-controller": {0o755, 0},
		"etc/passwd":                       {0o644, 0},
		"etc/group":                        {0o644, 0},
		"tmp/":                             {0o1777, nonroot},
		"run/tombolo/":                     {0o755, nonroot},
		"var/lib/tombolo/":                 {0o755, nonroot},
	} {
		h, ok := files[name]
		if !ok {
			t.Errorf("%s: no %s", arch, name)
			continue
		}
		if h.Mode != want.mode || h.Uid != want.owner || h.Gid != want.owner {
			t.Errorf("%s: %s has mode %o and owner %d:%d, want %o and %d", arch, name, h.Mode, h.Uid, h.Gid, want.mode, want.owner)
		}
	}
	for _, name := range []string{"proxy-agent", "proxy-server"} {
		if h, ok := files[name]; !ok || h.Typeflag != tar.TypeSymlink || h.Linkname != "/usr/local/bin/tombolo" {
			t.Errorf("%s: %s leads nowhere: %+v", arch, name, h)
		}
	}
	if !strings.Contains(string(contents["etc/passwd"]), "nonroot:x:65532:65532:") {
		t.Errorf("%s: /etc/passwd has no nonroot: %s", arch, contents["etc/passwd"])
	}
	if len(contents["usr/share/doc/tombolo/LICENSE"]) == 0 {
		t.Errorf("%s: the image carries no license", arch)
	}
	f, err := elf.NewFile(bytes.NewReader(contents["usr/local/bin/tombolo"]))
	if err != nil {
		t.Fatalf("%s: /usr/local/bin/tombolo: %v", arch, err)
	}
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if f.Machine != want {
		t.Errorf("%s: the binary is for %s", arch, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s: the binary has a %s: it is not static", arch, p.Type)
		}
	}
}

func readTar(t *testing.T, r io.Reader) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	headers, contents := map[string]*tar.Header{}, map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[h.Name] = h
		if contents[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImageIsReproducible builds twice, with working directories of different
// names and at different times: a
// path or a date of the machine in the image would change the bytes.
func TestImageIsReproducible(t *testing.T) {
	sum := func(tmpdir string) [32]byte {
		t.Setenv("TMPDIR", tmpdir)
		t.Setenv("GOTMPDIR", tmpdir)
		out := filepath.Join(tmpdir, "image.tar")
		buildImage(t, "--out", out)
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(data)
	}
	first, second := sum(t.TempDir()), sum(t.TempDir())
	if first != second {
		t.Errorf("two builds differ: %x and %x", first, second)
	}

	out := filepath.Join(t.TempDir(), "image.tar")
	buildImage(t, "--out", out, "--version", "v0.0.2-test")
	other, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(other) == first {
		t.Error("another version gives the same bytes: the comparison proves nothing")
	}
}

func TestTarHoldsTheLayout(t *testing.T) {
	base := t.TempDir()
	out, dir := filepath.Join(base, "sub", "image.tar"), filepath.Join(base, "layout")
	buildImage(t, "--out", out, "--dir", dir)

	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	headers, contents := readTar(t, f)
	for name, h := range headers {
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s carries owner %d:%d %q or date %s of the machine", name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(contents[name], want) {
			t.Errorf("%s differs between tar and directory", name)
		}
	}
	for _, name := range []string{"oci-layout", "index.json"} {
		if _, ok := headers[name]; !ok {
			t.Errorf("the tar has no %s", name)
		}
	}
	left, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the tar lies something else: %v %v", left, err)
	}
}

func TestGivenBinaryIsTakenAsItIs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "binary")
	cmd := exec.Command("go", "build", "-o", file, "./testdata/standin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out := filepath.Join(dir, "layout")
	buildImage(t, "--binary", runtime.GOARCH+"="+file, "--dir", out, "--package", "./no/such/package")

	wrong := "arm64"
	if runtime.GOARCH == "arm64" {
		wrong = "amd64"
	}
	err := run(t.Context(), []string{"--license", file, "--arch", wrong, "--binary", wrong + "=" + file, "--out", filepath.Join(dir, "x.tar")}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "not "+wrong) {
		t.Errorf("a binary of another architecture gave %v", err)
	}
	err = run(t.Context(), []string{"--license", file, "--binary", runtime.GOARCH + "=" + filepath.Join(dir, "layout", "index.json"), "--out", filepath.Join(dir, "x.tar")}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "not a Linux executable") {
		t.Errorf("a file that is no binary gave %v", err)
	}
}

func TestDynamicBinaryIsRefused(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatalf("the test needs a dynamically linked program, /bin/sh: %v", err)
	}
	f, err := elf.NewFile(bytes.NewReader(shell))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("/bin/sh of this machine is static, so it shows nothing")
	}
	if err := checkStatic(shell, runtime.GOARCH); err == nil || !strings.Contains(err.Error(), "dynamic loader") {
		t.Errorf("a dynamic binary gave %v", err)
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"nowhere", nil, "nowhere to write"},
		{"argument", []string{"--out", "x", "y"}, `unexpected argument "y"`},
		{"arch", []string{"--out", "x", "--arch", "z80"}, `"z80" is not one of`},
		{"arch twice", []string{"--out", "x", "--arch", "amd64,amd64"}, "twice"},
		{"tag", []string{"--out", "x", "--tag", "tombolo"}, "--tag"},
		{"version", []string{"--out", "x", "--version", "a b"}, "one word"},
		{"binary", []string{"--out", "x", "--binary", "amd64"}, "want ARCH=FILE"},
		{"binary of no arch", []string{"--out", "x", "--arch", "amd64", "--binary", "arm64=f"}, "not in --arch"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := run(t.Context(), tc.args, io.Discard)
			if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a usage error with %q", err, tc.want)
			}
		})
	}
}

func TestFullDirectoryIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := placeLayout(t.TempDir(), dir); err == nil {
		t.Error("a directory with files in it was written to")
	}
}

func TestSourceDate(t *testing.T) {
	root := t.TempDir() // no git here
	env := func(v string) func(string) string { return func(string) string { return v } }
	src, err := describeSource(context.Background(), root, env(""))
	if err != nil || src.created.Unix() != 0 || src.revision != "" {
		t.Errorf("without git: %+v, %v", src, err)
	}
	if src, err = describeSource(context.Background(), root, env("12")); err != nil || src.created.Unix() != 12 {
		t.Errorf("SOURCE_DATE_EPOCH=12: %+v, %v", src, err)
	}
	if _, err = describeSource(context.Background(), root, env("yesterday")); !errors.As(err, new(usageError)) {
		t.Errorf("SOURCE_DATE_EPOCH=yesterday gave %v", err)
	}
	for _, args := range [][]string{
		{"init", "-q"},
		{"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "--allow-empty", "-m", "x", "--date=@1600000000"},
	} {
		cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=@1600000000", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	src, err = describeSource(context.Background(), root, env(""))
	if err != nil || src.created.Unix() != 1600000000 || len(src.revision) != 40 {
		t.Errorf("with git: %+v, %v", src, err)
	}
}
