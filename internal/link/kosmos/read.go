// SPDX-License-Identifier: Apache-2.0

package kosmos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// MostBytes bounds a file: the plans of a hundred nodes, each with entries for all others, have about 3 MiB.
const MostBytes = 16 << 20

// mostMessage bounds what is said about one value.
const mostMessage = 1024

// mostDepth bounds the nesting of what is looked at; conf reports what is deeper.
const mostDepth = 64

// Read reads YAML or JSON: documents, each an object or a list of some. An error is about the whole file; what is wrong
// with one object is a finding, and the object is left out.
func Read(file string, data []byte) (Report, error) {
	var out Report
	if len(data) > MostBytes {
		return out, fault.Newf(fault.CodeConfig, "%s has more than %d bytes", file, MostBytes).
			Hint("give the kinds, or the clusters, one after the other")
	}
	nodes, doc := conf.Nodes(file, data)
	if problems := doc.Problems(); len(problems) > 0 {
		return out, fault.Newf(fault.CodeConfig, "%s is not YAML", file).Whyf("%s", problems[0]).
			Hint("correct the line named")
	}
	var all []*reading
	seen := map[string]bool{}
	for _, n := range nodes {
		for _, one := range itemsOf(n) {
			r := open(file, one)
			if id := r.object(); r.name != "" && seen[id] {
				r.refuse("metadata.name", "there are two of that name")
			} else {
				seen[id] = true
			}
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return out, fault.Newf(fault.CodeConfig, "%s has no object", file).
			Hint("kubectl get clusters.kosmos.io,clusternodes.kosmos.io,nodeconfigs.kosmos.io -o yaml")
	}
	var owners owners
	for _, kind := range []string{v1alpha1.KindCluster, v1alpha1.KindClusterNode, v1alpha1.KindNodeConfig, ""} {
		for _, r := range all {
			if r.kind == kind {
				r.convert(&owners)
			}
		}
	}
	for _, r := range all {
		out.Objects = append(out.Objects, r.objects...)
		out.Findings = append(out.Findings, r.all()...)
	}
	out.sort()
	return out, nil
}

// itemsOf are the objects of a document: those of a list, or the one that it is.
func itemsOf(n *yaml.Node) []*yaml.Node {
	if items := field(n, "items"); items != nil && items.Kind == yaml.SequenceNode && field(n, "spec") == nil {
		return items.Content
	}
	return []*yaml.Node{n}
}

// reading is one object while it is read.
type reading struct {
	file       string
	kind, name string // kind is empty if it is none of ours
	called     string // its kind, as the file has it
	node       *yaml.Node
	doc        *conf.Document
	findings   []Finding          // about values
	special    map[string]Finding // about fields, in place of what the table says
	refused    bool
	objects    []Object
}

func (r *reading) object() string {
	return strings.TrimSpace(shown(cmp.Or(r.called, "object")) + " " + shown(r.name))
}

// open looks at what an object is.
func open(file string, n *yaml.Node) *reading {
	r := &reading{file: file, node: n, special: map[string]Finding{}}
	dropNulls(n, 0)
	r.called, r.name = text(field(n, "kind")), text(field(field(n, "metadata"), "name"))
	var group struct{}
	r.doc = conf.DecodeNode(file, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column}, &group)
	switch version := text(field(n, "apiVersion")); {
	case n.Kind != yaml.MappingNode:
		r.called = "document"
		r.refuse("", "an object is expected")
	case !strings.HasPrefix(version, Group+"/"):
		r.refuse("apiVersion", "%q is not %s", shown(version), apiVersion)
	case otherKinds()[r.called] != "":
		r.note(Finding{Field: "kind", Outcome: Gone, Why: otherKinds()[r.called]})
	case !slices.Contains([]string{v1alpha1.KindCluster, v1alpha1.KindClusterNode, v1alpha1.KindNodeConfig}, r.called):
		r.refuse("kind", "%q is no kind of %s that links clusters", shown(r.called), Group)
	case version != apiVersion:
		r.refuse("apiVersion", "%q is not %s", shown(version), apiVersion)
	case r.name == "":
		r.refuse("metadata.name", "it is missing")
	default:
		r.kind = r.called
	}
	return r
}

// convert makes an object of ours.
func (r *reading) convert(o *owners) {
	if r.refused {
		return
	}
	switch r.kind {
	case v1alpha1.KindCluster:
		var c cluster
		if r.decode(&c) {
			r.cluster(c, o)
		}
	case v1alpha1.KindClusterNode:
		var n clusterNode
		if r.decode(&n) {
			r.clusterNode(n, o)
		}
	case v1alpha1.KindNodeConfig:
		var c nodeConfig
		if r.decode(&c) {
			r.nodeConfig(c, o)
		}
	}
}

// decode reads what stands beside the metadata, strictly.
func (r *reading) decode(into any) bool {
	rest := *r.node
	rest.Content = nil
	for i := 0; i+1 < len(r.node.Content); i += 2 {
		if key := r.node.Content[i]; !slices.Contains([]string{"apiVersion", "kind", "metadata"}, key.Value) {
			rest.Content = append(rest.Content, key, r.node.Content[i+1])
		}
	}
	r.doc = conf.DecodeNode(r.file, &rest, into)
	for _, p := range r.doc.Problems() {
		r.refused = true
		r.findings = append(r.findings, Finding{r.object(), shown(p.Path), p.Line, p.Column, Refused, "",
			untrusted.Text(p.Message, mostMessage)})
	}
	if n := r.doc.Unlisted(); n > 0 {
		r.refuse("", "and %d more", n)
	}
	return !r.refused
}

// refuse says what is wrong with the value at a path, and leaves the object out.
func (r *reading) refuse(path, format string, args ...any) {
	r.refused = true
	r.note(Finding{Field: path, Outcome: Refused, Why: fmt.Sprintf(format, args...)})
}

// note adds a finding about a value.
func (r *reading) note(f Finding) {
	at := r.doc.Place(f.Field, "")
	if n := nodeAt(r.node, f.Field); n != nil {
		at.Line, at.Column = n.Line, n.Column
	}
	f.Object, f.Field, f.Line, f.Column = r.object(), shown(f.Field), at.Line, at.Column
	r.findings = append(r.findings, f)
}

// instead has a field another outcome than the table says.
func (r *reading) instead(field string, o Outcome, to, why string) {
	r.special[field] = Finding{Outcome: o, To: to, Why: why}
}

// add makes an object, unless something was refused.
func (r *reading) add(name string, spec any) {
	if !r.refused {
		r.objects = append(r.objects, Object{v1alpha1.Version, r.kind, Name{name}, spec})
	}
}

// all are the findings about the object: of one that is refused, why; of any other, each of its fields.
func (r *reading) all() []Finding {
	if r.refused || r.kind == "" {
		return r.findings
	}
	rows := map[string]Row{}
	for _, row := range Rows() {
		if row.Kind == r.kind {
			rows[row.Field] = row
		}
	}
	w := walk{r, rows, map[string]bool{}}
	w.fields("", r.node, 0)
	return r.findings
}

// walk finds the fields that an object has.
type walk struct {
	*reading
	rows map[string]Row
	said map[string]bool
}

func (w walk) fields(path string, n *yaml.Node, depth int) {
	switch {
	case depth > mostDepth:
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			w.fields(path+"[]", item, depth+1)
		}
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, at := n.Content[i], n.Content[i].Value
			if path != "" {
				at = path + "." + at
			}
			row, listed := w.rows[at]
			if strings.HasPrefix(at, "metadata.") && !listed {
				row, listed, at, key = w.rows["metadata"], true, "metadata", metadataOf(w.node)
			} else if at == "metadata" {
				listed = false
			}
			switch {
			case !listed:
				w.fields(at, n.Content[i+1], depth+1)
			case !w.said[at]:
				w.said[at] = true
				f := Finding{w.object(), at, key.Line, key.Column, row.Outcome, row.To, row.Why}
				if s, other := w.special[at]; other {
					f.Outcome, f.To, f.Why = s.Outcome, s.To, s.Why
				}
				w.findings = append(w.findings, f)
			}
		}
	}
}

// metadataOf is the key of the metadata.
func metadataOf(n *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "metadata" {
			return n.Content[i]
		}
	}
	return n
}

// field is the value of a key in a mapping, or nil.
func field(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// nodeAt is what stands at a path of names alone.
func nodeAt(n *yaml.Node, path string) *yaml.Node {
	for name := range strings.SplitSeq(path, ".") {
		n = field(n, name)
	}
	return n
}

func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// shown is a text of the file as a message may have it.
func shown(s string) string { return untrusted.Text(s, mostName) }

// dropNulls leaves fields without a value out, as Kubernetes does.
func dropNulls(n *yaml.Node, depth int) {
	if depth > mostDepth {
		return
	}
	if n.Kind == yaml.MappingNode {
		kept := n.Content[:0]
		for i := 0; i+1 < len(n.Content); i += 2 {
			if v := n.Content[i+1]; v.Kind != yaml.ScalarNode || v.Tag != "!!null" {
				kept = append(kept, n.Content[i], v)
			}
		}
		n.Content = kept
	}
	for _, c := range n.Content {
		dropNulls(c, depth+1)
	}
}
