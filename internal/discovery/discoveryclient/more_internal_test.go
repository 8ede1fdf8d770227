// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestMoreOfTheFile: problems of the part that is another one's stand among ours, each at
// its place, and the faults of its files with ours.
func TestMoreOfTheFile(t *testing.T) {
	file := fault.New(fault.CodeSecret, "a file of the other part")
	got := 0
	part := func(raw v1alpha1.MeshConfig, add conf.Report) error {
		if got++; raw.Mesh.MTU != nil && *raw.Mesh.MTU == 1 {
			add("mesh.mtu", "too small")
		}
		return file
	}
	text := head + "cluster: {secretFiles: [" + newSecret(t) + "]}\nnode: {name: a}\n"
	_, err := ParseConfig("x.yaml", []byte(text+"healthListen: nowhere\nmesh: {mtu: 1}\n"), part)
	if s := fmt.Sprint(err); !fault.Has(err, fault.CodeConfig) || !strings.Contains(s, "x.yaml:5:15: healthListen: ") || !strings.Contains(s, "x.yaml:6:13: mesh.mtu: too small") {
		t.Errorf("%v", err)
	}
	if _, err := ParseConfig("x.yaml", []byte(text), part, part); !errors.Is(err, file) || got != 3 {
		t.Errorf("%v, asked %d times", err, got)
	}
	if _, err := ParseConfig("x.yaml", []byte(text+"mesh: {mtuu: 1}\n")); !fault.Has(err, fault.CodeConfig) {
		t.Errorf("an unknown key of the other part: %v", err)
	}
	if _, err := ParseConfig("x.yaml", []byte(text+"mesh: {mtu: 1}\n")); err != nil {
		t.Errorf("who does not look at the other part: %v", err)
	}
}

// TestTheMeshSaysItself: what only a running mesh knows is not announced by hand.
func TestTheMeshSaysItself(t *testing.T) {
	for field, value := range map[string]string{"mesh": "1", "relayCluster": "c1", "relays": "[h1]", "pin": strings.Repeat("A", 42) + "E", "engine": "ipsec"} {
		_, err := ParseConfig("x.yaml", []byte(head+"cluster: {secretFiles: ["+newSecret(t)+"]}\nnode: {name: a}\nannounce: {"+field+": "+value+"}\n"))
		if !fault.Has(err, fault.CodeConfig) || !strings.Contains(fmt.Sprint(err), ": announce."+field+": the mesh itself says it") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
