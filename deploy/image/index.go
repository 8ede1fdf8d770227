// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const entrypoint = "/usr/local/bin/tombolo"

// archImage is the image for one architecture.
type archImage struct {
	arch  string
	image v1.Image
}

// newImage makes the image for one architecture: one layer, and a
// configuration that needs no privilege.
func newImage(arch string, c content, version string, src source) (v1.Image, error) {
	layer, err := newLayer(c, src.created)
	if err != nil {
		return nil, err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: layer,
		History: v1.History{
			Created:   v1.Time{Time: src.created},
			CreatedBy: "tombolo deploy/image",
			Comment:   "static binary, passwd, group, license and empty directories",
		},
	})
	if err != nil {
		return nil, err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", arch
	if arch == "arm64" {
		cfg.Variant = "v8" // as platform matchers expect it (OCI image index, platform variants)
	}
	cfg.Created = v1.Time{Time: src.created}
	cfg.Config = v1.Config{
		// Numbers, not names: kubelet's runAsNonRoot cannot look a name up.
		User:       strconv.Itoa(nonroot) + ":" + strconv.Itoa(nonroot),
		Entrypoint: []string{entrypoint},
		Env:        []string{"PATH=/usr/local/bin"},
		WorkingDir: "/",
		Labels:     labels(version, src),
	}
	return mutate.ConfigFile(img, cfg)
}

func labels(version string, src source) map[string]string {
	out := map[string]string{
		"org.opencontainers.image.title":         "tombolo",
		"org.opencontainers.image.description":   "Connects control planes to clusters that they cannot dial",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.source":        "https://github.com/tombolo-io/tombolo",
		"org.opencontainers.image.url":           "https://github.com/tombolo-io/tombolo",
		"org.opencontainers.image.documentation": "https://github.com/tombolo-io/tombolo/tree/main/docs",
		"org.opencontainers.image.version":       version,
		"org.opencontainers.image.created":       src.created.Format(time.RFC3339),
	}
	if src.revision != "" {
		out["org.opencontainers.image.revision"] = src.revision
	}
	return out
}

// newIndex joins the images of all architectures under one digest.
func newIndex(images []archImage) v1.ImageIndex {
	idx := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		platform := &v1.Platform{OS: "linux", Architecture: i.arch}
		if i.arch == "arm64" {
			platform.Variant = "v8"
		}
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{
			Add:        i.image,
			Descriptor: v1.Descriptor{Platform: platform},
		})
	}
	return idx
}
