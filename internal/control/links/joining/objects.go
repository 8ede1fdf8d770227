// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// label is on all that a join makes, with the name of the cluster.
const label = "tombolo.dev/linked"

// The kinds that a join makes, in the order in which they are made, and removed backwards.
func kinds() []schema.GroupVersionKind {
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return []schema.GroupVersionKind{
		core("Namespace"),
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: kindDefinition},
		admission.WithKind("ValidatingAdmissionPolicy"), admission.WithKind("ValidatingAdmissionPolicyBinding"),
		core("ServiceAccount"), rbac("ClusterRole"), rbac("Role"),
		rbac("ClusterRoleBinding"), rbac("RoleBinding"),
		core("Secret"), core("ConfigMap"), core("Service"),
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		apps("Deployment"), apps("DaemonSet"),
		admission.WithKind("ValidatingWebhookConfiguration"),
	}
}

const kindDefinition = "CustomResourceDefinition"

// read reads documents of YAML.
func read(text string) (out []*unstructured.Unstructured, err error) {
	for doc := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			return nil, fault.New(fault.CodeInternal, "a manifest cannot be read").Because(err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if !slices.Contains(kinds(), u.GroupVersionKind()) {
			return nil, fault.Newf(fault.CodeInternal, "a manifest has a %s, which would not be removed again", u.GetKind())
		}
		// Two manifests have one namespace; the last one has the labels that its pods need.
		out = slices.DeleteFunc(out, func(o *unstructured.Unstructured) bool { return name(o) == name(u) })
		out = append(out, u)
	}
	return ordered(out), nil
}

// ordered has objects in the order in which they are made.
func ordered(docs []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortStableFunc(docs, func(a, b *unstructured.Unstructured) int {
		return slices.Index(kinds(), a.GroupVersionKind()) - slices.Index(kinds(), b.GroupVersionKind())
	})
	return docs
}

// shared reports whether an object that somebody else has made serves as well: kinds, the policy and the roles of
// members, and the namespace.
func shared(u *unstructured.Unstructured) bool {
	switch u.GetKind() {
	case "Namespace", kindDefinition, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return true
	case "ClusterRole", "ClusterRoleBinding":
		return u.GetName() == "tombolo-member"
	}
	return false
}

// name is an object for people.
func name(u *unstructured.Unstructured) string {
	if space := u.GetNamespace(); space != "" {
		return u.GetKind() + " " + space + "/" + u.GetName()
	}
	return u.GetKind() + " " + u.GetName()
}

// own marks objects as those of a cluster, and leaves out what somebody else has made and serves as well. It refuses
// what is somebody else's and does not.
func (p *place) own(ctx context.Context, docs []*unstructured.Unstructured, cluster string) (
	ours, theirs []*unstructured.Unstructured, err error) {
	var inTheWay []string
	for _, u := range docs {
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[label] = cluster
		u.SetLabels(labels)
		have := &unstructured.Unstructured{}
		have.SetGroupVersionKind(u.GroupVersionKind())
		err := p.Get(ctx, client.ObjectKeyFromObject(u), have)
		if err != nil && !missing(err) {
			return nil, nil, failed("read "+name(u), err)
		}
		of := have.GetLabels()[label]
		switch {
		case err != nil || of == cluster:
			ours = append(ours, u)
		case shared(u):
			theirs = append(theirs, u)
		case of != "":
			return nil, nil, fault.Newf(fault.CodeLinkRefused, "this cluster has joined as %q already", of).
				Hint("tombolo link unjoin %s%s, and then join as %s; nothing was changed", of, within(have.GetNamespace()), cluster)
		default:
			inTheWay = append(inTheWay, name(u))
		}
	}
	if len(inTheWay) > 0 {
		return nil, nil, fault.New(fault.CodeLinkRefused, "objects that a join makes are there, made by somebody else").
			Whyf("%s", strings.Join(inTheWay, ", ")).
			Hint("remove them, or choose another --namespace; nothing was changed")
	}
	return ours, theirs, nil
}

// apply has the API server have an object.
func (p *place) apply(ctx context.Context, u *unstructured.Unstructured) error {
	err := p.Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner(fieldOwner),
		client.ForceOwnership)
	return failed("apply "+name(u), err)
}

// settled waits until namespaces and kinds are gone that are being removed, such as those of a cluster that was
// unlinked a moment ago: nothing can be made in them.
func (p *place) settled(ctx context.Context, docs []*unstructured.Unstructured, wait time.Duration,
	tell *teller) error {
	for _, u := range docs {
		if k := u.GetKind(); k != "Namespace" && k != kindDefinition {
			continue
		}
		ok, err := until(ctx, wait, func(ctx context.Context) (bool, error) {
			have := made(u.GroupVersionKind(), "", u.GetName(), nil)
			if err := p.Get(ctx, client.ObjectKeyFromObject(u), have); missing(err) {
				return true, nil
			} else if err != nil {
				return false, failed("read "+name(u), err)
			}
			if have.GetDeletionTimestamp() == nil {
				return true, nil
			}
			tell.waits("waiting until " + name(u) + " is gone, which is being removed")
			return false, nil
		})
		if err == nil && !ok {
			err = fault.Newf(fault.CodeLinkPending, "%s is being removed, and still there after %s", name(u), wait).
				Hint("'kubectl get %s %s -o yaml' says in its status what it waits for; then run this again",
					strings.ToLower(u.GetKind()), u.GetName())
		}
		if err != nil {
			return err
		}
		tell.took()
	}
	return nil
}

// remove deletes an object. One that is not there is no error.
func (p *place) remove(ctx context.Context, u *unstructured.Unstructured) error {
	err := p.Delete(ctx, u, client.PropagationPolicy("Background"))
	if missing(err) {
		return nil
	}
	return failed("delete "+name(u), err)
}

// every lists the objects of a kind. A kind that is not there has none.
func (p *place) every(ctx context.Context, kind schema.GroupVersionKind, o ...client.ListOption) (
	[]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	kind.Kind += "List"
	list.SetGroupVersionKind(kind)
	if err := p.List(ctx, &list, o...); err != nil && !missing(err) {
		return nil, failed("list "+kind.Kind, err)
	}
	return list.Items, nil
}

// made makes an object with a few fields.
func made(kind schema.GroupVersionKind, space, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	for k, v := range fields {
		u.Object[k] = v
	}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(space)
	u.SetName(name)
	return u
}

func core(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

func apps(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
}

func rbac(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: kind}
}

func links(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "tombolo.dev", Version: "v1alpha1", Kind: kind}
}

// count is how many objects of each kind there are, for people.
func count(docs []*unstructured.Unstructured) string {
	var out []string
	for _, k := range kinds() {
		n := 0
		for _, u := range docs {
			if u.GroupVersionKind() == k {
				n++
			}
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, k.Kind))
		}
	}
	return strings.Join(out, ", ")
}
