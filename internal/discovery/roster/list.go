// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// ReadList reads a MemberList: what the operator states in a file, without a
// lease. One problem anywhere, and nothing of the file counts.
func ReadList(file string, data []byte) ([]Said, error) {
	var raw v1alpha1.MemberList
	doc := conf.Decode(file, data, &raw)
	if doc.Unread() {
		return nil, doc.Err()
	}
	doc.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	doc.Want("kind", v1alpha1.KindMemberList, raw.Kind)
	if len(raw.Members) > limit.RosterList {
		doc.Add("members", "%d members, at most %d are allowed", len(raw.Members), limit.RosterList)
		return nil, doc.Err()
	}
	r := reading{doc.Add}
	var out []Said
	seen := map[string]string{} // value to where it stands
	once := append(unique(), one(FieldKey, func(f *member.Facts) *member.Key { return &f.Key }))
	for i, m := range raw.Members {
		path := fmt.Sprintf("members[%d]", i)
		f := r.spec(path+".", m.MemberSpec)
		if f.Node = r.text(path+".name", m.Name); m.Name == "" {
			doc.Add(path+".name", "the member has no name")
		}
		f.ID = f.Node
		for _, u := range once {
			if !u.stated(&f) {
				continue
			}
			at, value := path+"."+map[Field]string{FieldNode: "name"}[u.field], string(u.field)+" "+u.text(&f)
			if u.field != FieldNode {
				at = path + "." + string(u.field)
			}
			if first, taken := seen[value]; taken {
				doc.Add(at, "%s is that of %s too", u.text(&f), first)
			}
			seen[value] = path
		}
		if f.Pair.File = m.SecretFile; f.Pair.File != "" && !filepath.IsAbs(f.Pair.File) {
			f.Pair.File = filepath.Join(filepath.Dir(file), f.Pair.File)
		}
		out = append(out, Said{Source: Source{Tier: TierStatic, Name: file}, Facts: f,
			EndpointNames: r.names(path+".endpointNames", m.EndpointNames)})
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// names reads the names of endpoints.
func (r reading) names(at string, texts []string) []string {
	if n := len(texts); n > limit.RosterNames {
		r.report(at, "%d items, at most %d are allowed", n, limit.RosterNames)
		return nil
	}
	for i, text := range texts {
		if _, err := policy.ParseTarget(text); err != nil {
			r.report(fmt.Sprintf("%s[%d]", at, i), "%s", err)
		}
	}
	return texts
}

// ReadSpec reads what a node's own configuration states of it, at a place that
// ends in a dot or is empty; report gets every problem.
func ReadSpec(report func(path, format string, args ...any), at string, s v1alpha1.MemberSpec) member.Facts {
	return reading{report}.spec(at, s)
}

// spec reads what the file and the objects of Kubernetes have in common.
func (r reading) spec(at string, s v1alpha1.MemberSpec) member.Facts {
	f := member.Facts{
		Nodename:  r.text(at+"nodename", s.Nodename),
		Hostname:  r.text(at+"hostname", s.Hostname),
		Key:       r.key(at+"publicKey", s.PublicKey),
		Pin:       r.pin(at+"pin", s.Pin),
		Engine:    r.engine(at+"engine", s.Engine),
		Overlay6:  r.overlay(at+"overlay6", s.Overlay6, true),
		Overlay4:  r.overlay(at+"overlay4", s.Overlay4, false),
		Addresses: each(r, at+"addresses", s.Addresses, r.address),
		Ranges:    each(r, at+"ranges", s.Ranges, r.prefix),
		Excluded:  each(r, at+"excluded", s.Excluded, r.prefix),
		Role:      r.role(at+"role", s.Role),
		OS:        r.text(at+"operatingSystem", s.OperatingSystem),
		Endpoints: each(r, at+"endpoints", s.Endpoints, func(path, s string) member.Endpoint {
			w := r.endpoint(path, s)
			w.Kind = member.KindStatic
			return w
		}),
	}
	r.mesh(at, s, &f)
	if p := s.APIServerPort; p != nil {
		if *p < 1 || *p > 65535 {
			r.report(at+"apiServerPort", "%d is no port", *p)
		} else {
			f.APIServerPort = uint16(*p)
		}
	}
	return f
}

// mesh reads by which ways the member may be reached.
func (r reading) mesh(at string, s v1alpha1.MemberSpec, f *member.Facts) {
	if s.Mesh < 0 || s.Mesh > math.MaxUint16 {
		r.report(at+"mesh", "%d is no version: 0 to 65535 are", s.Mesh)
	} else {
		f.Mesh = uint32(s.Mesh)
	}
	if f.RelayCluster = s.RelayCluster; s.RelayCluster != "" {
		if _, err := id.ParseCluster(s.RelayCluster); err != nil {
			r.report(at+"relayCluster", "%s", short(err.Error()))
		}
	}
	if n := len(s.Relays); n > limit.MeshRelays {
		r.report(at+"relays", "%d items, at most %d are allowed", n, limit.MeshRelays)
		return
	}
	f.Relays = each(r, at+"relays", s.Relays, func(path, name string) string {
		if err := id.CheckHub(name); err != nil {
			r.report(path, "%s", short(err.Error()))
		}
		return name
	})
}

// labels reads what an object says of itself beside the facts of a file.
func (r reading) labels(at string, l v1alpha1.MemberLabels, f *member.Facts) {
	f.Node = r.text(at+"node", l.Node)
	if n := len(l.Clusters); n > limit.ClusterSecrets {
		r.report(at+"clusters", "%d items, at most %d are allowed", n, limit.ClusterSecrets)
		return
	}
	if n := len(l.Lost); n > limit.MemberLost {
		r.report(at+"lost", "%d items, at most %d are allowed", n, limit.MemberLost)
		return
	}
	f.Lost = each(r, at+"lost", l.Lost, r.text)
	f.Clusters = each(r, at+"clusters", l.Clusters, func(path, s string) string {
		digits, ok := strings.CutPrefix(s, "t1-")
		if strings.Trim(digits, "0123456789abcdefghijklmnopqrstuv") != "" || !ok || len(digits) != 52 {
			r.report(path, "%q is no id of a cluster's secret", short(s))
		}
		return s
	})
}

// Labels writes what labels reads.
func Labels(f member.Facts) v1alpha1.MemberLabels {
	l := v1alpha1.MemberLabels{Node: f.Node, Clusters: f.Clusters, Lost: f.Lost[:min(len(f.Lost), limit.MemberLost)]}
	if len(l.Node) > limit.RosterText { // longer than a certificate has it: no hub knows it
		l.Node = ""
	}
	return l
}

// Spec writes what spec reads.
func Spec(f member.Facts) v1alpha1.MemberSpec {
	s := v1alpha1.MemberSpec{
		Nodename: f.Nodename, Hostname: f.Hostname, PublicKey: f.Key.String(), Role: string(f.Role), OperatingSystem: f.OS,
		Pin: f.Pin.String(), Engine: string(f.Engine),
		Overlay6: addrText(f.Overlay6), Overlay4: addrText(f.Overlay4),
		Addresses: texts(f.Addresses), Ranges: texts(f.Ranges), Excluded: texts(f.Excluded),
		Mesh: int(min(f.Mesh, math.MaxUint16)), RelayCluster: f.RelayCluster, Relays: f.Relays,
	}
	for _, w := range f.Endpoints {
		s.Endpoints = append(s.Endpoints, w.Addr.String())
	}
	if f.APIServerPort != 0 {
		port := int(f.APIServerPort)
		s.APIServerPort = &port
	}
	return s
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func texts[T fmt.Stringer](in []T) []string {
	var out []string
	for _, v := range in {
		out = append(out, v.String())
	}
	return slices.Clip(out)
}

// ReadMember reads an object of Kubernetes. seen is when its renewal was seen to
// change, by our own clock: that of the node that wrote it may be wrong.
func ReadMember(source string, seen time.Time, m v1alpha1.Member) (Said, error) {
	var problems []string
	r := reading{func(path, format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}}
	f := r.spec("spec.", m.Spec.MemberSpec)
	r.labels("spec.", m.Spec.MemberLabels, &f)
	if f.ID = r.text("metadata.name", m.Metadata.Name); f.ID == "" {
		r.report("metadata.name", "it is empty")
	}
	f.Nodename = cmp.Or(f.Nodename, f.ID)
	if f.Nodename != f.ID {
		r.report("spec.nodename", "%q is not the object's name, by which the API server knows who may write it", f.Nodename)
	}
	lease := time.Duration(m.Spec.LeaseSeconds) * time.Second
	if m.Spec.LeaseSeconds < 0 || m.Spec.LeaseSeconds > int(limit.DiscoveryTTL/time.Second) {
		r.report("spec.leaseSeconds", "%d is no lease: at most %v is", m.Spec.LeaseSeconds, limit.DiscoveryTTL)
	}
	if len(problems) > 0 {
		return Said{}, fault.Newf(fault.CodeAnnotation, "the object Member %q cannot be read", short(m.Metadata.Name)).
			Whyf("%s", strings.Join(problems[:min(len(problems), 10)], "; ")).
			Hint("correct it: kubectl edit members.tombolo.dev NAME; nothing of it counts until then")
	}
	said := Said{Source: Source{Tier: TierKubernetes, Name: source}, Facts: f,
		Version: uint64(max(m.Metadata.Generation, 0)), Heard: seen}
	if lease > 0 {
		said.Until = seen.Add(lease)
	}
	return said, nil
}
