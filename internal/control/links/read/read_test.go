// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

// fake is a cluster that gives pages.
type fake struct {
	mapper  *meta.DefaultRESTMapper
	objects map[string][]map[string]any // by kind
	errs    map[string]error            // by verb and kind, or name
	calls   []string
}

// newFake has the kinds that Kubernetes has, and others.
func newFake(serviceCIDR string, more ...schema.GroupVersionKind) *fake {
	for _, kind := range []string{"Node", "Pod", "ConfigMap", "Service"} {
		more = append(more, schema.GroupVersionKind{Version: "v1", Kind: kind})
	}
	if serviceCIDR != "" {
		more = append(more, schema.GroupVersionKind{Group: "networking.k8s.io", Version: serviceCIDR, Kind: "ServiceCIDR"})
	}
	var versions []schema.GroupVersion
	for _, kind := range more {
		versions = append(versions, kind.GroupVersion())
	}
	f := &fake{mapper: meta.NewDefaultRESTMapper(versions), objects: map[string][]map[string]any{}, errs: map[string]error{}}
	for _, kind := range more {
		f.mapper.Add(kind, meta.RESTScopeRoot)
	}
	return f
}

func (f *fake) RESTMapper() meta.RESTMapper { return f.mapper }

func (f *fake) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	f.calls = append(f.calls, "get "+key.String())
	if err := f.errs["get "+key.Name]; err != nil {
		return err
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
}

func (f *fake) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	list, kind := into.(*unstructured.UnstructuredList), into.GetObjectKind().GroupVersionKind().Kind
	f.calls = append(f.calls, fmt.Sprint("list ", kind, " ", o.Namespace, " ", o.LabelSelector, " ", o.Continue))
	if err := f.errs["list "+kind]; err != nil {
		return err
	}
	from := 0
	if o.Continue != "" {
		from, _ = strconv.Atoi(o.Continue)
	}
	all := f.objects[kind]
	end := min(len(all), from+int(o.Limit))
	for _, object := range all[from:end] {
		list.Items = append(list.Items, unstructured.Unstructured{Object: object})
	}
	if end < len(all) {
		list.SetContinue(strconv.Itoa(end))
	}
	return nil
}

func (f *fake) Create(_ context.Context, o client.Object, opts ...client.CreateOption) error {
	if !slices.Contains(opts, client.CreateOption(client.DryRunAll)) {
		return errors.New("this is no dry run")
	}
	u := o.(*unstructured.Unstructured)
	ip, _, _ := unstructured.NestedString(u.Object, "spec", "clusterIP")
	f.calls = append(f.calls, "create "+u.GetNamespace()+" "+ip)
	return f.errs["create "+ip]
}

// called reports whether a call begins so.
func (f *fake) called(prefix string) bool {
	return slices.ContainsFunc(f.calls, func(c string) bool { return strings.HasPrefix(c, prefix) })
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
}

func refused(code int32, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message, Reason: metav1.StatusReasonInvalid}}
}

func nodesOf(n int) (out []map[string]any) {
	for i := range n {
		out = append(out, map[string]any{"kind": "Node", "metadata": map[string]any{"name": fmt.Sprint("n", i)}})
	}
	return out
}

var pools = schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"}

func TestPages(t *testing.T) {
	f := newFake("v1", pools)
	f.objects["Node"] = nodesOf(2*pageSize + 1)
	f.objects["ServiceCIDR"] = []map[string]any{{"spec": map[string]any{"cidrs": []any{"10.96.0.0/12"}}}}
	for range mostPools + 1 {
		f.objects["IPPool"] = append(f.objects["IPPool"], map[string]any{"spec": map[string]any{"cidr": "10.0.0.0/8"}})
	}
	got, err := Facts(t.Context(), f, learn.Spec{}, "tombolo")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Nodes) != 2*pageSize+1 || len(got.Pools) != mostPools || fmt.Sprint(got.TooMany) != "[ippools.crd.projectcalico.org]" {
		t.Errorf("%d nodes, %d pools, too many of %v", len(got.Nodes), len(got.Pools), got.TooMany)
	}
	for _, never := range []string{"list BlockAffinity", "list Cilium", "list Pod", "list ConfigMap", "create"} {
		if f.called(never) {
			t.Errorf("%s, which this cluster does not need: %q", never, f.calls)
		}
	}
	if !got.ServiceCIDRAPI || len(got.ServiceCIDRs) != 1 || !f.called("get kube-system/cilium-config") {
		t.Errorf("%+v, %q", got.ServiceCIDRs, f.calls)
	}
}

// What the user says is not read.
func TestOnlyOneCNI(t *testing.T) {
	f := newFake("v1", pools)
	if _, err := Facts(t.Context(), f, learn.Spec{CNI: "cilium", ExternalAPIServer: true}, "tombolo"); err != nil {
		t.Fatal(err)
	}
	if f.called("list IPPool") || f.called("list Pod") || f.called("get kube-system/kube-flannel") || !f.called("get cilium/cilium-config") {
		t.Errorf("%q", f.calls)
	}
}

// Calico may have its kinds in another group.
func TestCalicoVersion3(t *testing.T) {
	f := newFake("v1", schema.GroupVersionKind{Group: "projectcalico.org", Version: "v3", Kind: "IPPool"},
		schema.GroupVersionKind{Group: "projectcalico.org", Version: "v3", Kind: "BlockAffinity"})
	f.objects["IPPool"] = []map[string]any{{"spec": map[string]any{"cidr": "10.0.0.0/8"}}}
	f.errs["list BlockAffinity"] = forbidden("blockaffinities")
	got, err := Facts(t.Context(), f, learn.Spec{}, "tombolo")
	if err != nil || len(got.Pools) != 1 || fmt.Sprint(got.Denied) != "[list blockaffinities.projectcalico.org]" {
		t.Errorf("%v, %v, %v", err, got.Pools, got.Denied)
	}
}

func TestFailures(t *testing.T) {
	away := errors.New("connection refused")
	const answer = "The range of valid IPs is 10.96.0.0/12"
	for name, c := range map[string]struct {
		api      string
		errs     map[string]error
		external bool
		fails    bool
		denied   string
		answers  string
		creates  bool
	}{
		"nothing":                {api: "v1", answers: "[]", denied: "[]"},
		"away":                   {api: "v1", errs: map[string]error{"list Node": away}, fails: true},
		"away for ConfigMaps":    {api: "v1", errs: map[string]error{"get calico-config": away}, fails: true},
		"an error of the server": {api: "v1", errs: map[string]error{"list Node": refused(500, "x")}, fails: true},
		"deleted meanwhile": {api: "v1", answers: "[]", denied: "[]",
			errs: map[string]error{"list IPPool": apierrors.NewNotFound(schema.GroupResource{}, "")}},
		"forbidden": {api: "v1", answers: "[]",
			errs:   map[string]error{"list IPPool": forbidden("ippools"), "get calico-config": forbidden("configmaps")},
			denied: "[list ippools.crd.projectcalico.org get configmaps calico-config in the namespace kube-system]"},
		"an older server": {errs: map[string]error{"create 0.0.0.0": refused(422, answer), "create ::": refused(422, "no IPv6")},
			denied: "[]", answers: "[" + answer + " no IPv6]", creates: true},
		"the beta": {api: "v1beta1", errs: map[string]error{"create 0.0.0.0": refused(422, answer), "create ::": refused(422, "no IPv6")},
			denied: "[]", answers: "[" + answer + " no IPv6]", creates: true},
		"another server": {external: true, errs: map[string]error{"create 0.0.0.0": refused(400, "no dry run")},
			denied: "[]", answers: "[no dry run a Service with the address :: is accepted]", creates: true},
		"it may not be asked": {errs: map[string]error{"create 0.0.0.0": forbidden("services")},
			denied: "[create services in the namespace tombolo]", answers: `[services is forbidden: no]`, creates: true},
		"too many requests":     {errs: map[string]error{"create 0.0.0.0": refused(http.StatusTooManyRequests, "x")}, fails: true},
		"away when it is asked": {errs: map[string]error{"create ::": away}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(c.api, pools)
			if c.errs != nil {
				f.errs = c.errs
			}
			got, err := Facts(t.Context(), f, learn.Spec{ExternalAPIServer: c.external}, "tombolo")
			if c.fails {
				if err == nil {
					t.Errorf("%+v", got)
				}
				return
			}
			if err != nil || fmt.Sprint(got.Denied) != c.denied || fmt.Sprint(got.Answers) != c.answers || f.called("create") != c.creates {
				t.Errorf("%v, %v, %v, %q", err, got.Denied, got.Answers, f.calls)
			}
			if f.called("list Pod kube-system component=kube-apiserver") == c.external {
				t.Errorf("pods of API servers: %q", f.calls)
			}
		})
	}
}

// An object that cannot be decoded does not hide others.
func TestBroken(t *testing.T) {
	f := newFake("v1", pools)
	for i := range 2 * mostBroken {
		f.objects["IPPool"] = append(f.objects["IPPool"], map[string]any{"kind": "IPPool",
			"metadata": map[string]any{"name": fmt.Sprint("p", i)}, "spec": map[string]any{"cidr": int64(7)}})
	}
	f.objects["IPPool"] = append(f.objects["IPPool"], map[string]any{"spec": map[string]any{"cidr": "10.0.0.0/8"}})
	got, err := Facts(t.Context(), f, learn.Spec{}, "tombolo")
	if err != nil || len(got.Pools) != 1 || len(got.Broken) != mostBroken || got.Broken[0].Object != "IPPool p0" {
		t.Errorf("%v, %d pools, %d broken", err, len(got.Pools), len(got.Broken))
	}
}
