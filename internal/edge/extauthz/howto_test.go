// SPDX-License-Identifier: Apache-2.0

package extauthz_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The fields of Istio's objects that the page uses.
type (
	meshConfig struct {
		ExtensionProviders []struct {
			Name              string `json:"name"`
			EnvoyExtAuthzGrpc struct {
				Service       string `json:"service"`
				Port          uint32 `json:"port"`
				Timeout       string `json:"timeout"`
				FailOpen      *bool  `json:"failOpen"`
				StatusOnError string `json:"statusOnError"`
			} `json:"envoyExtAuthzGrpc"`
		} `json:"extensionProviders"`
	}
	istioObject[S any] struct {
		APIVersion string                           `json:"apiVersion"`
		Kind       string                           `json:"kind"`
		Metadata   struct{ Name, Namespace string } `json:"metadata"`
		Spec       S                                `json:"spec"`
	}
	authorizationPolicy struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Action   string                `json:"action"`
		Provider struct{ Name string } `json:"provider"`
		Rules    []struct {
			To []struct {
				Operation struct {
					Ports []string `json:"ports"`
				} `json:"operation"`
			} `json:"to"`
		} `json:"rules"`
	}
	envoyFilter struct {
		WorkloadSelector struct {
			Labels map[string]string `json:"labels"`
		} `json:"workloadSelector"`
		ConfigPatches []struct {
			ApplyTo string `json:"applyTo"`
			Match   struct {
				Context  string `json:"context"`
				Listener struct {
					PortNumber  uint32 `json:"portNumber"`
					FilterChain struct {
						Filter struct{ Name string } `json:"filter"`
					} `json:"filterChain"`
				} `json:"listener"`
			} `json:"match"`
			Patch struct {
				Operation string          `json:"operation"`
				Value     json.RawMessage `json:"value"`
			} `json:"patch"`
		} `json:"configPatches"`
	}
)

// TestHowto: the configurations of docs/howto/ext-authz.md are what Envoy and Istio read, and fail closed.
func TestHowto(t *testing.T) {
	page, err := os.ReadFile("../../../docs/howto/ext-authz.md")
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(part, "\n```")
		var raw map[string]any
		if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		strict := func(into any) {
			t.Helper()
			d := json.NewDecoder(bytes.NewReader(data))
			d.DisallowUnknownFields()
			if err := d.Decode(into); err != nil {
				t.Fatalf("%s\n%v", text, err)
			}
		}
		switch kind, _ := raw["kind"].(string); {
		case raw["static_resources"] != nil:
			seen = append(seen, "envoy")
			envoy(t, data, &bootstrapv3.Bootstrap{}, 2)
		case raw["extensionProviders"] != nil:
			seen = append(seen, "mesh")
			var m meshConfig
			strict(&m)
			p := m.ExtensionProviders[0].EnvoyExtAuthzGrpc
			if p.FailOpen == nil || *p.FailOpen || p.Service == "" || p.Port == 0 || p.Timeout == "" {
				t.Errorf("%+v", p)
			}
		case kind == "AuthorizationPolicy":
			seen = append(seen, kind)
			var o istioObject[authorizationPolicy]
			strict(&o)
			if o.APIVersion != "security.istio.io/v1" || o.Spec.Action != "CUSTOM" || len(o.Spec.Rules[0].To[0].Operation.Ports) != 2 {
				t.Errorf("%+v", o)
			}
		case kind == "EnvoyFilter":
			seen = append(seen, kind)
			var o istioObject[envoyFilter]
			strict(&o)
			p := o.Spec.ConfigPatches[0]
			if o.APIVersion != "networking.istio.io/v1alpha3" || p.ApplyTo != "NETWORK_FILTER" || p.Match.Context != "GATEWAY" ||
				p.Match.Listener.PortNumber == 0 || p.Patch.Operation != "INSERT_BEFORE" {
				t.Errorf("%+v", o)
			}
			envoy(t, p.Patch.Value, &listenerv3.Filter{}, 1)
		default:
			t.Errorf("nothing reads this:\n%s", text)
		}
	}
	if got := strings.Join(seen, " "); got != "envoy mesh AuthorizationPolicy EnvoyFilter" {
		t.Error(got)
	}
}

// envoy reads a configuration as Envoy does, validates every message in it, and wants so many
// filters that ask and fail closed.
func envoy(t *testing.T, data []byte, into proto.Message, filters int) {
	t.Helper()
	if err := protojson.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
	err := protorange.Range(into.ProtoReflect(), func(p protopath.Values) error {
		m, is := p.Index(-1).Value.Interface().(protoreflect.Message)
		if !is {
			return nil
		}
		if v, can := m.Interface().(interface{ ValidateAll() error }); can {
			if err := v.ValidateAll(); err != nil {
				return err
			}
		}
		if a, is := m.Interface().(interface {
			GetFailureModeAllow() bool
			GetIncludeTlsSession() bool
		}); is {
			filters--
			name := m.Descriptor().FullName()
			if a.GetFailureModeAllow() || strings.Contains(string(name), "network") && !a.GetIncludeTlsSession() {
				t.Errorf("%s lets pass what it cannot ask about, or does not send the server name", name)
			}
		}
		return nil
	})
	if err != nil || filters != 0 {
		t.Errorf("%v; %d filters are missing", err, filters)
	}
}
