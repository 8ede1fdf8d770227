// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Images of the test pods. No registry knows them; they are imported into each node's containerd.
const (
	Image      = "tombolo.local/rig:dev"   // the workload program, and busybox
	pauseImage = "tombolo.local/pause:dev" // the workload program as the sandbox process
)

// applets are the busybox commands that tests use in pods. kubectl cp needs tar.
const applets = "sh cat tar sha256sum dd ls mkdir rm sleep head wc echo kill ps ip nc wget"

type layer struct {
	name string
	data []byte
}

// image is a tag, the command line of its containers without arguments, and layers.
type image struct {
	tag    string
	argv   []string
	layers []layer
}

// writeImages writes a docker archive with both images.
func writeImages(path, workload string) error {
	program, err := programLayer(workload)
	if err != nil {
		return err
	}
	box, err := busyboxLayer()
	if err != nil {
		return err
	}
	return writeArchive(path, []image{{pauseImage, []string{"/workload", "pause"}, []layer{program}},
		{Image, []string{"/workload"}, []layer{program, box}}})
}

// writeArchive writes a docker archive, which `ctr images import` understands.
func writeArchive(path string, images []image) error {
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifest []entry
	var files []layer
	have := map[string]bool{}
	for _, i := range images {
		config, err := imageConfig(i.argv, i.layers)
		if err != nil {
			return err
		}
		e := entry{Config: config.name, RepoTags: []string{i.tag}}
		for _, l := range i.layers {
			e.Layers = append(e.Layers, l.name)
			if !have[l.name] {
				files = append(files, l)
			}
			have[l.name] = true
		}
		files = append(files, config)
		manifest = append(manifest, e)
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	out, err := archive(append(files, layer{"manifest.json", text}), nil)
	if err != nil {
		return err
	}
	return os.WriteFile(path, out, 0o644)
}

func imageConfig(argv []string, layers []layer) (layer, error) {
	var ids []string
	for _, l := range layers {
		ids = append(ids, "sha256:"+digest(l.data))
	}
	text, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": argv, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	return layer{digest(text) + ".json", text}, err
}

func programLayer(path string) (layer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return layer{}, err
	}
	out, err := archive([]layer{{"workload", data}}, nil)
	return layer{"workload.tar", out}, err
}

func busyboxLayer() (layer, error) {
	data, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return layer{}, fmt.Errorf("%w (Debian package busybox-static)", err)
	}
	links := map[string]string{}
	for _, name := range strings.Fields(applets) {
		links["bin/"+name] = "busybox"
	}
	out, err := archive([]layer{{"bin/busybox", data}, {"etc/passwd", []byte("root:x:0:0:root:/:/bin/sh\n")}}, links)
	return layer{"busybox.tar", out}, err
}

// archive makes a tar of executable files, symbolic links and an open /tmp where there are links.
func archive(files []layer, links map[string]string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.data)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	for name, target := range links {
		if err := w.WriteHeader(&tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink, Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	if links != nil {
		if err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
