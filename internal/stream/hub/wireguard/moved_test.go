// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"crypto/ecdh"
	"net/netip"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

const header = "apiVersion: tombolo.dev/v1alpha1\nkind: ClusterState\n"

// paired is a cluster whose keys belong together.
func paired(t testing.TB) Cluster {
	t.Helper()
	k := Cluster{"a", On, netip.MustParseAddr("192.168.128.16"), member.Key{}, secretOf(11), secretOf(12)}
	p, err := ecdh.X25519().NewPrivateKey(k.PrivateKey.Get()[:])
	if err != nil {
		t.Fatal(err)
	}
	k.PublicKey = member.Key(p.PublicKey().Bytes())
	return k
}

// written is a file of the cluster.
func written(t testing.TB, k Cluster) string {
	t.Helper()
	s := StateOf(k)
	text, err := yaml.Marshal(map[string]any{"apiVersion": s.APIVersion, "kind": s.Kind, "cluster": s.Cluster,
		"wireguard": map[string]string{"mode": s.WireGuard.Mode, "address": s.WireGuard.Address, "publicKey": s.WireGuard.PublicKey,
			"privateKey": s.WireGuard.PrivateKey, "secret": s.WireGuard.Secret}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestStateThereAndBack(t *testing.T) {
	for _, k := range []Cluster{paired(t), {Name: "b", Mode: Inherit}} {
		raw, err := ReadState("f", []byte(written(t, k)))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := CheckState(raw); err != nil || !back.Same(k) {
			t.Errorf("%+v, %v; want %+v", back, err, k)
		}
	}
}

func TestStateProblems(t *testing.T) {
	key := secretOf(3).Encode()
	for text, want := range map[string]string{
		"":            "the file is empty",
		"kind: Other": `"ClusterState" is expected`,
		header:        `wireguard.mode: "" is none of inherit, on, off`,
		header + "cluster: A\nwireguard: {mode: on}":                                                              `cluster name "A"`,
		header + "cluster: a\nwireguard: {mode: \"on\", address: \"::1\"}":                                        "is no IPv4 address",
		header + "cluster: a\nwireguard: {mode: \"on\", address: 10.0.0.1}":                                       "has publicKey and secret too",
		header + "cluster: a\nwireguard: {mode: \"on\", secret: x}":                                               "wireguard.secret: it is not base64",
		header + "cluster: a\nwireguard: {mode: \"on\", publicKey: \"" + key + "\", privateKey: \"" + key + "\"}": "it is not that of publicKey",
	} {
		_, err := ReadState("f", []byte(text))
		if !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzState reads anything as a file of kind ClusterState. What is accepted is kept and written as it was read.
func FuzzState(f *testing.F) {
	f.Add([]byte(written(f, paired(f))))
	f.Add([]byte(header + "cluster: b\nwireguard: {mode: inherit}\n"))
	f.Add([]byte(header + "cluster: b\nwireguard: {mode: \"on\", address: 10.0.0.1, publicKey: x}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := ReadState("f", data)
		if err != nil {
			if !fault.Has(err, fault.CodeConfig) {
				t.Errorf("%v", err)
			}
			return
		}
		k, err := CheckState(raw)
		if err != nil {
			t.Fatalf("read from a file, and refused: %v", err)
		}
		again, err := CheckState(StateOf(k))
		if err != nil || !again.Same(k) {
			t.Errorf("%+v became %+v, %v", k, again, err)
		}
		if c, err := (Config{}).Import([]Cluster{k}, again, false); err != nil || !c.Same(k) {
			t.Errorf("an identical one is refused: %v", err)
		}
	})
}
