// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// TestTheMeshExampleSaysNothingOfItself: who sets what the guide names has no value of
// an example left; and as a comment each field is there.
func TestTheMeshExampleSaysNothingOfItself(t *testing.T) {
	var got, want v1alpha1.MeshConfig
	if d := conf.Decode("mesh.yaml", []byte(exampleMesh), &got); d.Err() != nil {
		t.Fatal(d.Err())
	}
	want.APIVersion, want.Kind = v1alpha1.Version, v1alpha1.KindMeshConfig
	want.Cluster.SecretFiles, want.Sources.Services = []string{"/etc/tombolo/cluster.secret"}, []v1alpha1.MeshService{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, field := range fieldsOf(reflect.TypeFor[v1alpha1.MeshConfig]()) {
		if !strings.Contains(exampleMesh, field+":") {
			t.Errorf("the example lacks %s", field)
		}
	}
	// Without the marks of comments its examples are right as well.
	text := strings.Replace(exampleMesh, "services: []", "services:", 1)
	key := regexp.MustCompile(`^ *# +(- )?[a-z][a-zA-Z0-9]*:( |$)`)
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		at := strings.Index(line, "# ")
		if key.MatchString(strings.TrimRight(line, "\n")) {
			lines[i] = line[:at] + line[at+2:]
		}
	}
	file := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := tombolo(t, "config", "validate", file); o.code != 0 {
		t.Errorf("%s%s", strings.Join(lines, ""), o.err)
	}
}

// TestTheMeshSectionIsChecked: problems of both halves of the file are told at once, by who
// runs no mesh as well.
func TestTheMeshSectionIsChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mesh.yaml")
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {secretFiles: [/nowhere]}\nhealthListen: x\nmesh: {mtu: 9, join: '@/nowhere'}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"config", "validate", file}, {"discovery", "announce", "--config", file}, {"discovery", "members", "--attend", "--config", file}} {
		wantExit(t, tombolo(t, verb...), 2, file+":4:15: healthListen: ", file+":5:13: mesh.mtu: 9 is not within 1280")
	}
}

// fieldsOf are the names of a document's fields, at every depth.
func fieldsOf(of reflect.Type) (out []string) {
	for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[v1alpha1.Duration]() {
		return nil
	}
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" {
			out = append(out, name)
		}
		out = append(out, fieldsOf(of.Field(i).Type)...)
	}
	return out
}
