// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

const listHead = "apiVersion: tombolo.dev/v1alpha1\nkind: MemberList\n"

const aPin = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA"

func list() string {
	return listHead + `members:
  - name: alpha
    nodename: alpha.example
    publicKey: ` + key(1).String() + `
    overlay6: fd00::1
    overlay4: 100.64.0.1
    addresses: [192.0.2.1, '2001:db8::1']
    endpoints: ['192.0.2.1:51820', '[2001:db8::1]:51820']
    ranges: [10.1.0.0/16]
    excluded: [10.1.9.0/24]
    role: controlplane
    apiServerPort: 6443
    operatingSystem: any
    mesh: 1
    relayCluster: c1
    relays: [hub-1, hub-2]
    secretFile: secrets/alpha
    endpointNames: ['a.example.com:51820']
    pin: ` + aPin + `
    engine: ipsec
  - name: beta
    publicKey: ` + key(2).String() + "\n"
}

func TestReadList(t *testing.T) {
	said, err := ReadList("members.yaml", []byte(list()))
	if err != nil {
		t.Fatal(err)
	}
	if n := said[0].EndpointNames; len(n) != 1 || n[0] != "a.example.com:51820" || len(said[1].EndpointNames) > 0 {
		t.Errorf("names %v", n)
	}
	beside, err := ReadList("/etc/tombolo/members.yaml", []byte(list()))
	if err != nil || beside[0].Facts.Pair.File != "/etc/tombolo/secrets/alpha" || beside[1].Facts.Pair != (member.Pair{}) {
		t.Errorf("%+v, %v", beside, err)
	}
	r := Merge(now(), me(), said, Rules{})
	want := "alpha 1 alpha 100.64.0.1 10.1.0.0/16 192.0.2.1:51820/static [2001:db8::1]:51820/static\nbeta 2 beta\n"
	if got := show(r); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if m := r.Members[0]; m.APIServerPort != 6443 || m.Role != "controlplane" || m.Overlay6.String() != "fd00::1" || len(m.Excluded) != 1 || m.OS != "any" ||
		m.Pin.String() != aPin || m.Engine != member.IPsec || m.Mesh != 1 || m.RelayCluster != "c1" || !slices.Equal(m.Relays, []string{"hub-1", "hub-2"}) ||
		!slices.Equal(m.Sources[FieldRanges], []Source{{Tier: TierStatic, Name: "members.yaml"}}) {
		t.Errorf("%+v", m)
	}
}

func TestReadListRefuses(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"kind", "kind: MemberList", "kind: HubConfig", "members.yaml:2:7: kind: "},
		{"version", "v1alpha1", "v9", "members.yaml:1:13: apiVersion: "},
		{"unknown key", "    role:", "    rolle:", "members.yaml:13:5: members[0].rolle: unknown key"},
		{"no name", "  - name: beta\n    ", "  - ", "members[1].name: the member has no name"},
		{"one name twice", "name: beta", "name: alpha", "members.yaml:23:11: members[1].name: alpha is that of members[0] too"},
		{"one key twice", key(2).String(), key(1).String(), "members[1].publicKey: "},
		{"key", key(2).String(), "AAAA", "members.yaml:24:16: members[1].publicKey: \"AAAA\" is not a WireGuard public key"},
		{"key of nobody", key(2).String(), strings.Repeat("A", 43) + "=", "is the zero key, which nobody has"},
		{"overlay", "overlay6: fd00::1", "overlay6: 10.0.0.1", "members.yaml:7:15: members[0].overlay6: 10.0.0.1 is of the other family"},
		{"zone", "overlay6: fd00::1", "overlay6: fe80::1%eth0", "is no address"},
		{"mapped", "fd00::1", "::ffff:10.0.0.1", "is no address"},
		{"loopback", "[192.0.2.1, ", "[127.0.0.1, ", "members[0].addresses[0]: 127.0.0.1 is a loopback address"},
		{"port", "192.0.2.1:51820", "192.0.2.1:0", "members[0].endpoints[0]: "},
		{"host bits", "10.1.0.0/16", "10.1.0.1/16", "10.1.0.1/16 has bits beyond its length; 10.1.0.0/16 is meant?"},
		{"role", "controlplane", "master", "\"master\" is no role"},
		{"port of the API server", "6443", "70000", "members[0].apiServerPort: 70000 is no port"},
		{"control character", "operatingSystem: any", `operatingSystem: "a\x1b[2J"`, "cannot be printed"},
		{"long", "operatingSystem: any", "operatingSystem: " + strings.Repeat("x", limit.RosterText+1), "at most"},
		{"version of paths", "mesh: 1", "mesh: -1", "members.yaml:16:11: members[0].mesh: -1 is no version"},
		{"cluster of relays", "relayCluster: c1", "relayCluster: C_1", "members[0].relayCluster: "},
		{"relay", "[hub-1, hub-2]", "[hub-1, hub.2]", "members[0].relays[1]: hub name \"hub.2\" has the character"},
		{"relay without a name", "[hub-1, hub-2]", "['']", "members[0].relays[0]: hub name is empty"},
		{"relays", "[hub-1, hub-2]", "[a, b, c, d, e, f, g, h, i]", "members[0].relays: 9 items, at most 8"},
		{"name without a port", "a.example.com:51820", "a.example.com", "members.yaml:20:21: members[0].endpointNames[0]: "},
		{"names", "['a.example.com:51820']", "[a, b, c, d, e, f, g, h, i]", "members[0].endpointNames: 9 items, at most 8"},
		{"pin", aPin, aPin + "=", "members.yaml:21:10: members[0].pin: "},
		{"engine", "engine: ipsec", "engine: openvpn", "members.yaml:22:13: members[0].engine: \"openvpn\" is no engine"},
		{"not YAML", "members:", "members: [", "members.yaml:"},
	} {
		if !strings.Contains(list(), c.old) {
			t.Fatalf("%s: nothing is replaced", c.name)
		}
		said, err := ReadList("members.yaml", []byte(strings.Replace(list(), c.old, c.new, 1)))
		if len(said) > 0 || !fault.Has(err, fault.CodeConfig) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func annotated() map[string]string {
	return map[string]string{
		AnnotationNodeID: "xyz", AnnotationAddresses: "192.0.2.1,2001:db8::1", AnnotationPort: "6443", AnnotationOverlay: "fd00::1", AnnotationKey: key(1).String(),
		AnnotationRanges: "10.1.0.0/16, 10.2.0.0/16", AnnotationEndpoints: "192.0.2.1:51820,[2001:db8::1]:51820", AnnotationExcluded: "10.1.9.0/24", "other": "thing",
	}
}

func TestReadAnnotations(t *testing.T) {
	said, ok, err := ReadAnnotations("c1", "kn", annotated())
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	f := said.Facts
	if f.ID != "kn" || f.Nodename != "kn" || f.Node != "xyz" || len(f.Addresses) != 2 || f.APIServerPort != 6443 || f.Overlay6.String() != "fd00::1" ||
		f.Key != key(1) || !slices.Equal(f.Ranges, ranges("10.1.0.0/16", "10.2.0.0/16")) || len(f.Endpoints) != 2 || !slices.Equal(f.Excluded, ranges("10.1.9.0/24")) {
		t.Errorf("%+v", f)
	}
	written := WriteAnnotations(f)
	again, _, err := ReadAnnotations("c1", "kn", written)
	if err != nil || !reflect.DeepEqual(again, said) {
		t.Errorf("written and read: %+v, %v", again, err)
	}
	if written[AnnotationRanges] != "10.1.0.0/16,10.2.0.0/16" || written[AnnotationEndpoints] != "192.0.2.1:51820,[2001:db8::1]:51820" {
		t.Errorf("written: %v", written)
	}
	if _, ok, err := ReadAnnotations("c1", "kn", map[string]string{"other": "thing"}); ok || err != nil {
		t.Errorf("a node without any: %v %v", ok, err)
	}
	for _, v := range WriteAnnotations(member.Facts{}) {
		if v != "" {
			t.Errorf("nothing is written as %q", v)
		}
	}
	if got := slices.Sorted(maps.Keys(WriteAnnotations(member.Facts{}))); len(got) != len(annotations()) {
		t.Errorf("%d annotations are written, %d are read", len(got), len(annotations()))
	}
}

func TestReadAnnotationsRefuses(t *testing.T) {
	for name, wrong := range map[string]string{
		AnnotationNodeID: "a\x00", AnnotationAddresses: "192.0.2.1,,", AnnotationPort: "06443", AnnotationOverlay: "10.0.0.1", AnnotationKey: "AAAA",
		AnnotationRanges: "10.1.0.0/33", AnnotationEndpoints: "192.0.2.1", AnnotationExcluded: strings.Repeat("10.0.0.0/8,", 10_000),
	} {
		in := annotated()
		in[name] = wrong
		said, ok, err := ReadAnnotations("c1", "kn", in)
		if ok || !reflect.DeepEqual(said, Said{}) || !fault.Has(err, fault.CodeAnnotation) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := ReadAnnotations("c1", "", annotated()); err == nil {
		t.Error("a node without a name is taken")
	}
}

func TestReadMember(t *testing.T) {
	said, err := ReadList("x", []byte(list()))
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec(said[0].Facts)
	m := v1alpha1.Member{Metadata: v1alpha1.MemberMeta{Name: "alpha.example", Generation: 4}, Spec: v1alpha1.MemberObjectSpec{
		MemberSpec: spec, MemberLabels: v1alpha1.MemberLabels{Node: "alpha", Clusters: []string{"t1-" + strings.Repeat("0v", 26)}}, MemberLease: v1alpha1.MemberLease{LeaseSeconds: 60}}}
	got, err := ReadMember("c1", now(), m)
	if err != nil || got.Version != 4 || !got.Until.Equal(now().Add(time.Minute)) || got.Facts.Key != key(1) || !reflect.DeepEqual(Spec(got.Facts), spec) || !reflect.DeepEqual(Labels(got.Facts), m.Spec.MemberLabels) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, spoil := range map[string]func(*v1alpha1.Member){
		"metadata.name":     func(m *v1alpha1.Member) { m.Metadata.Name = "" },
		"spec.nodename":     func(m *v1alpha1.Member) { m.Metadata.Name = "another" },
		"spec.ranges[0]":    func(m *v1alpha1.Member) { m.Spec.Ranges = []string{"x"} },
		"spec.mesh":         func(m *v1alpha1.Member) { m.Spec.Mesh = 65536 },
		"spec.pin":          func(m *v1alpha1.Member) { m.Spec.Pin = m.Spec.PublicKey },
		"spec.engine":       func(m *v1alpha1.Member) { m.Spec.Engine = "auto" },
		"spec.relayCluster": func(m *v1alpha1.Member) { m.Spec.RelayCluster = "-" },
		"spec.relays[0]":    func(m *v1alpha1.Member) { m.Spec.Relays = []string{"H"} },
		"spec.node":         func(m *v1alpha1.Member) { m.Spec.Node = "a\nb" },
		"spec.clusters[0]":  func(m *v1alpha1.Member) { m.Spec.Clusters = []string{"t1-" + strings.Repeat("w", 52)} },
		"spec.clusters[1]":  func(m *v1alpha1.Member) { m.Spec.Clusters = append(m.Spec.Clusters, "a name") },
		"spec.clusters: 5":  func(m *v1alpha1.Member) { m.Spec.Clusters = make([]string, 5) },
		"spec.leaseSeconds": func(m *v1alpha1.Member) { m.Spec.LeaseSeconds = 1801 },
	} {
		bad := m
		spoil(&bad)
		if _, err := ReadMember("c1", now(), bad); !fault.Has(err, fault.CodeAnnotation) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzReadList: a file has one reading, and what is taken can be merged and written.
func FuzzReadList(f *testing.F) {
	f.Add([]byte(list()))
	f.Fuzz(func(t *testing.T, data []byte) {
		said, err := ReadList("f", data)
		again, err2 := ReadList("f", data)
		if fmt.Sprint(err) != fmt.Sprint(err2) || !reflect.DeepEqual(said, again) {
			t.Fatalf("read twice: %v and %v", err, err2)
		}
		if err != nil {
			if len(said) > 0 || !fault.Has(err, fault.CodeConfig) {
				t.Errorf("half applied, or an error without its code: %v", err)
			}
			return
		}
		if r := Merge(now(), Self{}, said, Rules{}); len(said) > 0 && len(r.Members) == 0 {
			t.Errorf("%d are read and none is a member", len(said))
		}
	})
}

// FuzzReadAnnotations: what is taken is written and read again as it was.
func FuzzReadAnnotations(f *testing.F) {
	a := annotated()
	f.Add("kn", a[AnnotationNodeID], a[AnnotationKey], a[AnnotationOverlay], a[AnnotationPort], a[AnnotationRanges], a[AnnotationEndpoints])
	f.Fuzz(func(t *testing.T, name, node, key, overlay, port, prefixes, endpoints string) {
		said, ok, err := ReadAnnotations("c", name, map[string]string{AnnotationNodeID: node, AnnotationKey: key, AnnotationOverlay: overlay,
			AnnotationPort: port, AnnotationRanges: prefixes, AnnotationExcluded: prefixes, AnnotationEndpoints: endpoints})
		if err != nil {
			if ok || !fault.Has(err, fault.CodeAnnotation) {
				t.Errorf("half applied, or an error without its code: %v", err)
			}
			return
		}
		again, ok2, err := ReadAnnotations("c", name, WriteAnnotations(said.Facts))
		if err != nil || ok != ok2 || !reflect.DeepEqual(said, again) {
			t.Errorf("%+v was written and read as %+v, %v", said, again, err)
		}
	})
}

// FuzzReadMember: what an object of Kubernetes says is taken whole or not at all, within the bounds, and what is
// taken is written and read again as it was.
func FuzzReadMember(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"kn","generation":4},"spec":{"publicKey":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","overlay6":"fd00::1",` +
		`"addresses":["192.0.2.1"],"endpoints":["192.0.2.1:51820"],"ranges":["10.1.0.0/16"],"role":"worker","apiServerPort":6443,"mesh":1,"pin":"` + aPin + `","engine":"ipsec","relayCluster":"c1","relays":["h1"],"node":"n","clusters":["t1-` + strings.Repeat("0v", 26) + `"],"leaseSeconds":60}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m v1alpha1.Member
		if json.Unmarshal(data, &m) != nil {
			return // FuzzObject of package kube looks at these
		}
		said, err := ReadMember("c", now(), m)
		if err != nil {
			if !reflect.DeepEqual(said, Said{}) || !fault.Has(err, fault.CodeAnnotation) || fault.From(err).Next == "" {
				t.Errorf("half applied, or an error without its code or what to do: %v", err)
			}
			return
		}
		if said.Facts.ID == "" || said.Facts.Nodename != said.Facts.ID || !said.Until.IsZero() && (said.Until.Before(now()) || said.Until.After(now().Add(limit.DiscoveryTTL))) {
			t.Errorf("taken: %+v", said)
		}
		m.Spec.MemberSpec, m.Spec.MemberLabels = Spec(said.Facts), Labels(said.Facts)
		again, err := ReadMember("c", now(), m)
		if err != nil || !reflect.DeepEqual(said, again) {
			t.Errorf("%+v was written and read as %+v, %v", said, again, err)
		}
		if r := Merge(now(), Self{}, []Said{said}, Rules{}); len(r.Members) != 1 || len(r.Conflicts) != 0 {
			t.Errorf("%+v is read, and is no member: %+v", said, r)
		}
	})
}
