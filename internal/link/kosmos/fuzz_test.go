// SPDX-License-Identifier: Apache-2.0

package kosmos_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/link/kosmos"
)

// FuzzRead: what is read is refused with a place, or gives objects whose values are what they should be. No key and no
// kubeconfig of the example comes out, whatever surrounds it.
func FuzzRead(f *testing.F) {
	full, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(link("cni: calico") + "---\n" + node("ip: 192.0.2.1")))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"kosmos.io/v1alpha1","kind":"Cluster"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := kosmos.Read("f.yaml", data)
		if err != nil {
			if f := fault.From(err); f.Code != fault.CodeConfig || f.Next == "" {
				t.Errorf("an error that does not help: %v", err)
			}
			return
		}
		for _, f := range r.Findings {
			if f.Object == "" || f.Outcome == "" || f.Line < 1 || f.Column < 1 || !untrusted.Printable(f.String()) {
				t.Errorf("a finding that does not help: %+v", f)
			}
		}
		for _, o := range r.Objects {
			if _, err := json.Marshal(o); err != nil || o.Metadata.Name == "" || o.APIVersion != v1alpha1.Version {
				t.Errorf("%+v, %v", o, err)
			}
			switch s := o.Spec.(type) {
			case v1alpha1.ClusterSpec:
				for k, v := range s.GlobalCIDRsMap {
					if a, b := netip.MustParsePrefix(k), netip.MustParsePrefix(string(v)); a != a.Masked() || a.Bits() != b.Bits() {
						t.Errorf("%s is mapped to %s", a, b)
					}
				}
			case v1alpha1.ClusterNodeSpec:
				if o.Metadata.Name != s.ClusterName+"."+s.NodeName || strings.Contains(s.ClusterName, ".") {
					t.Errorf("%s is %s of %s", o.Metadata.Name, s.NodeName, s.ClusterName)
				}
			case v1alpha1.NodeConfigSpec:
				for _, x := range s.XfrmStates {
					netip.MustParseAddr(string(x.LeftIP))
				}
			}
		}
	})
}
