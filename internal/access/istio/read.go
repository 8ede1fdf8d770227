// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Read adds objects as 'kubectl get -o yaml' or -o json writes them: documents, and lists of kind List. Kinds that
// mean nothing here are skipped; file stands in errors.
func (f *Facts) Read(file string, data []byte) error {
	in := yaml.NewDecoder(bytes.NewReader(data))
	for n := 1; ; n++ {
		var doc any
		err := in.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var raw []byte
		if err == nil && doc != nil {
			raw, err = json.Marshal(doc)
		}
		if err == nil && raw != nil {
			err = f.add(raw)
		}
		if err != nil {
			return fault.Newf(fault.CodeConfig, "%s: document %d cannot be read", file, n).Because(err).
				Hint("give what 'kubectl get -o yaml' writes")
		}
	}
}

func (f *Facts) add(raw json.RawMessage) error {
	var o struct {
		TypeMeta
		Metadata Meta              `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return err
	}
	var err error
	switch o.Kind {
	case "List":
		for _, item := range o.Items {
			if err := f.add(item); err != nil {
				return err
			}
		}
	case "Gateway":
		if group(o.APIVersion) == group(APINetworking) { // not the one of the Gateway API
			f.Gateways, err = appended(f.Gateways, raw)
		}
	case "VirtualService":
		f.VirtualServices, err = appended(f.VirtualServices, raw)
	case KindEnvoyFilter:
		f.EnvoyFilters, err = appended(f.EnvoyFilters, raw)
	case KindAuthorizationPolicy:
		f.AuthorizationPolicies, err = appended(f.AuthorizationPolicies, raw)
	case "Service":
		f.Services, err = appended(f.Services, raw)
	case KindConfigMap:
		f.ConfigMaps, err = appended(f.ConfigMaps, raw)
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", o.Kind, o.Metadata.Namespace, o.Metadata.Name, err)
	}
	return nil
}

func group(apiVersion string) string {
	before, _, _ := strings.Cut(apiVersion, "/")
	return before
}

func appended[T any](all []T, raw []byte) ([]T, error) {
	var one T
	if err := json.Unmarshal(raw, &one); err != nil {
		return all, err
	}
	return append(all, one), nil
}

// Ways are a way into a cluster with its lists, by the rules for it; names that rules treat alike share one. Rules of
// which a list can say a part only are returned as well: there the list denies what they deny, and allows nothing of
// what they allow.
func Ways(rules *policy.EdgeRules, cluster string, protected bool, of Way) (out []Way, partly []policy.Partial) {
	take := func(name string) policy.SourceList {
		w := policy.EdgeWay{Cluster: cluster, Flow: of.Flow, Name: name}
		for _, p := range rules.Partials(w) {
			if !slices.Contains(partly, p) {
				partly = append(partly, p)
			}
		}
		return rules.Sources(w, protected)
	}
	same := func(a, b policy.SourceList) bool {
		return a.Protected == b.Protected && slices.Equal(a.Allow, b.Allow) && slices.Equal(a.Deny, b.Deny)
	}
	for _, host := range of.Hosts {
		list := take(host)
		i := slices.IndexFunc(out, func(w Way) bool { return same(w.List, list) })
		if i < 0 {
			out, i = append(out, Way{Flow: of.Flow, List: list}), len(out)
		}
		out[i].Hosts = append(out[i].Hosts, host)
	}
	if len(of.Destinations) > 0 {
		out = append(out, Way{Flow: of.Flow, Destinations: of.Destinations, List: take("")})
	}
	return out, partly
}
