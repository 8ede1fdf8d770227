// SPDX-License-Identifier: Apache-2.0

package controlconf_test

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
)

const head = "apiVersion: tombolo.dev/v1alpha1\nkind: ControllerConfig\n"

func TestAConfigurationIsRead(t *testing.T) {
	cfg, err := controlconf.Parse("c.yaml", []byte(head+`features:
  access:
    gateways:
    - namespace: istio-ingress
      selector: app=gw, istio.io/rev=a
      connectPorts: [{port: 8132, header: Reversed-VPN}]
      portNames: [{name: tls, port: 9443}]
      provider: tombolo
      complete: true
    additionalRanges: [192.0.2.0/24]
    maxRanges: -1
    rootNamespace: mesh
    gardener: {answer: true}
webhooks: {certificateLife: 2m}
`))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Name != "tombolo-controller" || cfg.WebhookListen != ":9443" || cfg.HealthListen != "127.0.0.1:8449" ||
		cfg.LeaseDuration != 15*time.Second || cfg.CertificateLife != 2*time.Minute || cfg.Access.MaxRanges != 0 ||
		cfg.Access.Gardener == nil || !cfg.Access.Gardener.Answer {
		t.Errorf("%+v", cfg)
	}
	w := cfg.Access.Gateways[0]
	if !w.Complete || w.Provider != "tombolo" || w.PortNames["tls"] != 9443 || w.RootNamespace != "mesh" || w.Enforcement != istio.Auto || !maps.Equal(w.Labels, map[string]string{"app": "gw", "istio.io/rev": "a"}) ||
		w.ConnectPorts[0] != (istio.ConnectPort{Port: 8132, Header: "reversed-vpn"}) {
		t.Errorf("%+v", w)
	}
	if cfg, err = controlconf.Parse("c.yaml", []byte(head+"features: {access: {}}\n")); err != nil {
		t.Fatal(err)
	}
	if cfg.Access.RootNamespace != "istio-system" || cfg.Access.MaxRanges != 50 || cfg.ShootAdmission != nil {
		t.Errorf("%d ranges", cfg.Access.MaxRanges)
	}
	cfg, err = controlconf.Parse("c.yaml", []byte(head+"features: {shootAdmission: {maxRanges: -1}}\n"))
	if err != nil || cfg.Access != nil || cfg.ShootAdmission.MaxRanges != 0 {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestEveryProblemHasItsPlace(t *testing.T) {
	for text, want := range map[string][]string{
		"features: {}\n":                       {"c.yaml:3:11: features: no feature is on"},
		"features:\n  acces: {}\n":             {`c.yaml:4:3: features.acces: unknown key; did you mean access?`},
		"namespace: A\nfeatures: {access: {}}": {`c.yaml:3:12: namespace: "A" is not the name of a namespace`},
		"name: tombolo-controller-of-the-northern-hemisphere\nfeatures: {access: {}}":      {"c.yaml:3:7: name:"},
		"healthListen: x\nfeatures: {access: {}}":                                          {"c.yaml:3:15: healthListen:"},
		"webhooks: {listen: x, certificateLife: 1s}\nfeatures: {access: {}}":               {"webhooks.listen:", "webhooks.certificateLife: 1s is less than 10s"},
		"webhooks: {names: [192.0.2.1, a b]}\nfeatures: {access: {}}":                      {"c.yaml:3:31: webhooks.names[1]:"},
		"leaderElection: {leaseDuration: 1s}\nfeatures: {access: {}}":                      {"c.yaml:3:33: leaderElection.leaseDuration: 1s is less than 2s"},
		"features:\n  access:\n    maxRanges: -2\n    additionalRanges: [10.0.0.1/8, x]\n": {"c.yaml:5:16: features.access.maxRanges:", "c.yaml:6:24: features.access.additionalRanges[0]:", "additionalRanges[1]"},
		"features: {access: {gateways: [{namespace: A, selector: app}]}}":                  {"gateways[0].namespace", `gateways[0].selector: "app" is not KEY=VALUE`},
		"features: {access: {settle: -1s, rootNamespace: B, formerNamespaces: [A], gateways: [{namespace: a, selector: a=b, dataNamespace: B}]}}": {
			"settle: ", "features.access.rootNamespace: \"B\" is not", "formerNamespaces[0]: ", "gateways[0].dataNamespace: "},
		"features: {shootAdmission: {maxRanges: -2}}":                                            {"features.shootAdmission.maxRanges: -2 is negative"},
		"features: {access: {gardener: {}}}":                                                     {"features.access.gardener: there are no gateways"},
		"features: {access: {gateways: [{namespace: a, selector: 'a=b,a=c'}]}}":                  {`the label "a" stands twice`},
		"features: {access: {gateways: [{namespace: a, selector: a=b, enforcement: envoy}]}}":    {`enforcement: "envoy" is none of auto, envoyfilter`},
		"features: {access: {gateways: [{namespace: a, selector: a=b, enforcement: extauthz}]}}": {"provider: is missing"},
		"features: {access: {gateways: [{namespace: a, selector: a=b}, {namespace: a, selector: a=b}]}}": {
			"gateways[1].namespace: gateways[0] is in the same one"},
		"features: {access: {gateways: [{namespace: a, selector: a=b, connectPorts: [{port: 0, header: Reversed-VPN}]}]}}": {
			"connectPorts[0].port: 0 is no port"},
		"features: {access: {gateways: [{namespace: a, selector: a=b, connectPorts: [{port: 1, header: Host}, {port: 1, header: reversed-vpn}]}]}}": {
			`connectPorts[0].header: "Host" is neither`, "connectPorts[1].port: 1 is listed twice"},
		"features: {access: {gateways: [{namespace: a, selector: a=b, portNames: [{name: A, port: 0}, {name: a, port: 1}, {name: a, port: 2}]}]}}": {
			`portNames[0].name: "A" is not the name`, "portNames[0].port: 0 is no port", `portNames[2].name: "a" is listed twice`},
		"features: {access: {gateways: [{namespace: a, selector: a=b, complete: true}, {namespace: b, selector: a=b, complete: true, provider: t, enforcement: envoyfilter}]}}": {
			"gateways[0].complete: is about ext_authz", "gateways[1].complete: is about ext_authz"},
	} {
		_, err := controlconf.Parse("c.yaml", []byte(head+text))
		if err == nil {
			t.Errorf("%s: it is accepted", text)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: there is no %q in %v", text, part, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../../cmd/tombolo/example/controller.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := controlconf.Parse("c.yaml", data)
		if err == nil && (cfg.Access == nil && cfg.ShootAdmission == nil || cfg.LeaseDuration <= 0 || cfg.CertificateLife <= 0) {
			t.Errorf("%+v", cfg)
		}
	})
}
