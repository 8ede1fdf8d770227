// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func edgeOptions(change func(*EdgeOptions)) EdgeOptions {
	o := EdgeDefaults()
	o.Image = "tombolo.local/tombolo:dev"
	if change != nil {
		change(&o)
	}
	return o
}

func TestEdgeProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*EdgeOptions)
		want   string
	}{
		"no image":              {func(o *EdgeOptions) { o.Image = "" }, "--image:"},
		"no tenants":            {func(o *EdgeOptions) { o.Tenants = "" }, "--tenants: is missing"},
		"tenants":               {func(o *EdgeOptions) { o.Tenants = "A b" }, "--tenants:"},
		"policies":              {func(o *EdgeOptions) { o.Policies = "A b" }, "--policies:"},
		"port":                  {func(o *EdgeOptions) { o.TLSPort = 0 }, "--port:"},
		"connect port":          {func(o *EdgeOptions) { o.Connect = 443 }, "--connect-port:"},
		"balancers":             {func(o *EdgeOptions) { o.From = []string{"lb"} }, "--proxy-protocol-from:"},
		"no replica":            {func(o *EdgeOptions) { o.Replicas = 0 }, "--replicas:"},
		"service type":          {func(o *EdgeOptions) { o.ServiceType = "ExternalName" }, "--service-type:"},
		"a class and no volume": {func(o *EdgeOptions) { o.StorageClass = "fast" }, "--storage-class:"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Edge(edgeOptions(tc.change))
			if !fault.Has(err, fault.CodeUsage) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
