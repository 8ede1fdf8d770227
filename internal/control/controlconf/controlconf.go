// SPDX-License-Identifier: Apache-2.0

// Package controlconf reads the configuration of the controller. It knows nothing of Kubernetes' libraries, so that
// the main program can check a file.
package controlconf

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// The defaults.
const (
	DefaultName   = "tombolo-controller"
	HealthListen  = "127.0.0.1:8449"
	WebhookListen = ":9443"
	RootNamespace = "istio-system"
	MaxRanges     = 50 // as the Gardener extension's admission has it

	certificateLife = 90 * 24 * time.Hour
	leastLife       = 10 * time.Second
	settle          = 10 * time.Second
	leaseDuration   = 15 * time.Second
	leastLease      = 2 * time.Second
	mostGateways    = 64
	mostRanges      = 1024
	mostNames       = 16
)

// Config is a valid configuration.
type Config struct {
	Version         string // of the program
	Kubeconfig      string // empty: the service account of the pod
	Namespace       string // empty: that of the pod
	Name            string
	Access          *Access         // nil: the feature is off
	ShootAdmission  *ShootAdmission // nil: the feature is off
	Links           *Links          // nil: the feature is off
	WebhookListen   string
	WebhookNames    []string // beside that of the Service
	CertificateLife time.Duration
	LeaseDuration   time.Duration
	HealthListen    string
	Log             v1alpha1.LogConfig
	Drain           time.Duration
}

// ShootAdmission is the configuration of the feature of that name.
type ShootAdmission struct {
	MaxRanges int // 0: no bound
}

// Access is the configuration of the feature of that name.
type Access struct {
	Gateways         []istio.Workload
	Former           []string // namespaces of former gateways
	RootNamespace    string   // of the mesh
	Settle           time.Duration
	AdditionalRanges []string
	Gardener         *v1alpha1.GardenerFeature // nil: Extensions are not read
	MaxRanges        int                       // 0: no bound
}

// Namespaces are those in which objects are written, or were.
func (a Access) Namespaces() []string {
	out := slices.Clone(a.Former)
	for _, g := range a.Gateways {
		out = append(out, g.Namespace)
		if g.DataNamespace != "" {
			out = append(out, g.DataNamespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Parse decodes and validates a file. It returns every problem at once.
func Parse(file string, data []byte) (Config, error) {
	var raw v1alpha1.ControllerConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindControllerConfig, raw.Kind)
	cfg := validate(raw, d.Add)
	return cfg, d.Err()
}

func validate(raw v1alpha1.ControllerConfig, add conf.Report) Config {
	c := Config{
		Kubeconfig: raw.Kubeconfig, Namespace: raw.Namespace, Name: cmp.Or(raw.Name, DefaultName),
		WebhookListen: cmp.Or(raw.Webhooks.Listen, WebhookListen), HealthListen: cmp.Or(raw.HealthListen, HealthListen),
		CertificateLife: add.Positive("webhooks.certificateLife", raw.Webhooks.CertificateLife.Duration, certificateLife),
		LeaseDuration: add.Positive("leaderElection.leaseDuration", raw.LeaderElection.LeaseDuration.Duration,
			leaseDuration),
		Log: raw.Log, Drain: add.Positive("drainTimeout", raw.DrainTimeout.Duration, limit.Drain),
	}
	add.Log(raw.Log.Format, raw.Log.Level)
	c.WebhookNames = raw.Webhooks.Names
	if n := len(c.WebhookNames); n > mostNames {
		add("webhooks.names", "%d names; at most %d are accepted", n, mostNames)
		return c
	}
	for i, name := range c.WebhookNames {
		if _, err := netip.ParseAddr(name); err != nil {
			if _, err := hostname.Parse(name); err != nil {
				add(fmt.Sprintf("webhooks.names[%d]", i), "%v", err)
			}
		}
	}
	add.Listener("healthListen", c.HealthListen)
	add.Listener("webhooks.listen", c.WebhookListen)
	if c.CertificateLife < leastLife {
		add("webhooks.certificateLife", "%v is less than %v", c.CertificateLife, leastLife)
	}
	if c.LeaseDuration < leastLease {
		add("leaderElection.leaseDuration", "%v is less than %v", c.LeaseDuration, leastLease)
	}
	if c.Namespace != "" && !isName(c.Namespace) {
		add("namespace", "%q is not the name of a namespace", c.Namespace)
	}
	if !isName(c.Name) || len(c.Name) > 40 { // further words follow it
		add("name", "%q is not a name of at most 40 small letters, digits and '-'", c.Name)
	}
	c.Links = links(raw.Features.Links, add)
	if f := raw.Features; f.Access == nil && f.ShootAdmission == nil && f.Links == nil {
		add("features", "no feature is on: the controller would do nothing; there are access, shootAdmission and links")
		return c
	}
	if f := raw.Features.Access; f != nil {
		c.Access = access(*f, func(path, format string, args ...any) {
			add("features.access."+path, format, args...)
		})
	}
	if f := raw.Features.ShootAdmission; f != nil {
		c.ShootAdmission = &ShootAdmission{most(f.MaxRanges, "features.shootAdmission.maxRanges", add)}
	}
	return c
}

// most is how many ranges one list may have; 0: any number.
func most(raw int, path string, add conf.Report) int {
	switch {
	case raw == 0:
		return MaxRanges
	case raw < -1:
		add(path, "%d is negative; -1 is no bound", raw)
	}
	return max(raw, 0)
}

func isName(text string) bool {
	_, err := id.ParseAgent(text)
	return err == nil
}

func access(raw v1alpha1.AccessFeature, add conf.Report) *Access {
	out := &Access{AdditionalRanges: raw.AdditionalRanges, Gardener: raw.Gardener,
		MaxRanges:     most(raw.MaxRanges, "maxRanges", add),
		RootNamespace: cmp.Or(raw.RootNamespace, RootNamespace),
		Former:        raw.FormerNamespaces, Settle: add.Positive("settle", raw.Settle.Duration, settle)}
	if !isName(out.RootNamespace) {
		add("rootNamespace", "%q is not the name of a namespace", raw.RootNamespace)
	}
	if raw.Gardener != nil && len(raw.Gateways) == 0 {
		add("gardener", "there are no gateways at which the lists could be enforced")
	}
	if n := len(raw.AdditionalRanges); n > mostRanges {
		add("additionalRanges", "%d ranges; at most %d are accepted", n, mostRanges)
		return out
	}
	for i, text := range raw.AdditionalRanges {
		if _, err := policy.InsiderAt("", "", text); err != nil {
			add(fmt.Sprintf("additionalRanges[%d]", i), "%v", err)
		}
	}
	if n := len(raw.Gateways); n > mostGateways {
		add("gateways", "%d gateways; at most %d are accepted", n, mostGateways)
		return out
	}
	for i, g := range raw.Gateways {
		at := fmt.Sprintf("gateways[%d].", i)
		w := gateway(g, func(path, format string, args ...any) { add(at+path, format, args...) })
		for j, other := range out.Gateways {
			if other.Namespace == w.Namespace { // they would select the same pods, or write the same names
				add(at+"namespace", "gateways[%d] is in the same one: list one gateway of each namespace", j)
			}
		}
		w.RootNamespace = out.RootNamespace
		out.Gateways = append(out.Gateways, w)
	}
	if n := len(out.Former); n > mostGateways {
		add("formerNamespaces", "%d namespaces; at most %d are accepted", n, mostGateways)
		return out
	}
	for i, ns := range out.Former {
		if !isName(ns) {
			add(fmt.Sprintf("formerNamespaces[%d]", i), "%q is not the name of a namespace", ns)
		}
	}
	return out
}

func gateway(raw v1alpha1.AccessGateway, add conf.Report) istio.Workload {
	out := istio.Workload{
		Namespace: raw.Namespace, Enforcement: cmp.Or(raw.Enforcement, istio.Auto), Provider: raw.Provider,
		DataNamespace: raw.DataNamespace, Complete: raw.Complete,
		Labels: map[string]string{},
	}
	if !isName(raw.Namespace) {
		add("namespace", "%q is not the name of a namespace", raw.Namespace)
	}
	if raw.DataNamespace != "" && !isName(raw.DataNamespace) {
		add("dataNamespace", "%q is not the name of a namespace", raw.DataNamespace)
	}
	for pair := range strings.SplitSeq(raw.Selector, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch _, twice := out.Labels[key]; {
		case !ok || key == "" || !isLabel(key, "/") || !isLabel(value, ""):
			add("selector", "%q is not KEY=VALUE of a label, or several joined by commas", raw.Selector)
			return out
		case twice:
			add("selector", "the label %q stands twice", key)
		}
		out.Labels[key] = value
	}
	if known := istio.Enforcements(); !slices.Contains(known, out.Enforcement) {
		add("enforcement", "%q is none of %s%s", out.Enforcement, strings.Join(known, ", "),
			conf.Meant(out.Enforcement, known...))
	}
	if out.Enforcement == istio.ExtAuthz && raw.Provider == "" {
		add("provider", "is missing: with enforcement extauthz the gateway has to ask somebody")
	}
	if raw.Complete && (raw.Provider == "" || out.Enforcement != istio.Auto && out.Enforcement != istio.ExtAuthz) {
		add("complete", "is about ext_authz: it needs a provider, and the enforcement auto or extauthz")
	}
	for i, p := range raw.PortNames {
		at := fmt.Sprintf("portNames[%d].", i)
		switch _, twice := out.PortNames[p.Name]; {
		case !isName(p.Name):
			add(at+"name", "%q is not the name of a container port", p.Name)
		case twice:
			add(at+"name", "%q is listed twice", p.Name)
		}
		if p.Port < 1 || p.Port > 65535 {
			add(at+"port", "%s is no port", strconv.Itoa(p.Port))
			continue
		}
		if out.PortNames == nil {
			out.PortNames = map[string]uint32{}
		}
		out.PortNames[p.Name] = uint32(p.Port)
	}
	for i, p := range raw.ConnectPorts {
		at := fmt.Sprintf("connectPorts[%d].", i)
		if p.Port < 1 || p.Port > 65535 {
			add(at+"port", "%s is no port", strconv.Itoa(p.Port))
			continue
		}
		if slices.ContainsFunc(out.ConnectPorts, func(o istio.ConnectPort) bool { return o.Port == uint32(p.Port) }) {
			add(at+"port", "%d is listed twice", p.Port)
		}
		header := strings.ToLower(p.Header)
		if known := []string{"reversed-vpn", "x-gardener-destination"}; !slices.Contains(known, header) {
			add(at+"header", "%q is neither Reversed-VPN nor X-Gardener-Destination", p.Header)
		}
		out.ConnectPorts = append(out.ConnectPorts, istio.ConnectPort{Port: uint32(p.Port), Header: header})
	}
	return out
}

// isLabel reports whether text has only characters of labels, and those of more.
func isLabel(text, more string) bool {
	return len(text) <= 317 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_."+more, r)
	})
}
