// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

const head = "apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\n"

// TestMistakesHaveTheirPlace: each is refused, with where it stands.
func TestMistakesHaveTheirPlace(t *testing.T) {
	secret := newSecret(t)
	good := head + "cluster: {secretFiles: [" + secret + "]}\nnode: {name: a}\n"
	if cfg, err := ParseConfig("x.yaml", []byte(good)); err != nil || cfg.Lease != limit.DiscoveryTTL || !cfg.Cache || len(cfg.Clusters()) != 1 || cfg.Announce.Node != "a" {
		t.Fatalf("%+v, %v", cfg, err)
	}
	service := func(s string) string { return good + "sources: {services: [" + s + "]}\n" }
	kubernetes := func(s string) string { return good + "sources: {kubernetes: " + s + "}\n" }
	many := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("{url: 'https://h%d'}", i))
		}
		return strings.Join(out, ", ")
	}
	for name, tc := range map[string]struct{ text, place string }{
		"no secret":                 {head + "cluster: {}\nnode: {name: a}\n", "cluster.secretFiles"},
		"an empty name of a file":   {head + "cluster: {secretFiles: ['']}\n", "cluster.secretFiles[0]"},
		"too many secrets":          {head + "cluster: {secretFiles: [a, b, c, d, e]}\n", "cluster.secretFiles"},
		"a secret twice":            {head + "cluster: {secretFiles: [" + secret + ", " + secret + "]}\n", "cluster.secretFiles[1]"},
		"a long id":                 {head + "cluster: {secretFiles: [" + secret + "], id: " + strings.Repeat("x", 257) + "}\n", "cluster.id"},
		"http":                      {service("{url: 'http://a'}"), "sources.services[0].url"},
		"http with a CA":            {service("{url: 'http://a', insecure: true, caFile: x}"), "sources.services[0].url"},
		"no URL":                    {service("{name: a}"), "sources.services[0].url"},
		"a CA and a pin":            {service("{url: 'https://a', caFile: /nowhere, pin: '" + strings.Repeat("A", 43) + "'}"), "sources.services[0].pin"},
		"a CA file that is none":    {service("{url: 'https://a', caFile: " + secret + "}"), "sources.services[0].caFile"},
		"a short pin":               {service("{url: 'https://a', pin: 'AAAA'}"), "sources.services[0].pin"},
		"a pin that is empty":       {service("{url: 'https://a', pin: ''}"), "sources.services[0].pin"},
		"a pin without a value":     {service("{url: 'https://a'}, {url: 'https://b', pin: }"), "sources.services[1].pin"},
		"a protocol":                {service("{url: 'https://a', protocol: tomorrow}"), "sources.services[0].protocol"},
		"the older one, no id":      {service("{url: 'https://a', protocol: sidero}"), "sources.services[0].protocol"},
		"a name twice":              {service("{url: 'https://a'}, {url: 'https://a:443'}"), "sources.services[1].name"},
		"too many services":         {service(many(limit.DiscoveryServices + 1)), "sources.services"},
		"a proxy":                   {service("{url: 'https://a', proxy: 'socks5://user:pa55@p'}"), "sources.services[0].proxy"},
		"a proxy and its file":      {service("{url: 'https://a', proxy: none, proxyFile: " + secret + "}"), "sources.services[0].proxyFile"},
		"a short lease":             {good + "announce: {lease: 1s}\n", "announce.lease"},
		"a long lease":              {good + "announce: {lease: 31m}\n", "announce.lease"},
		"a key and its file":        {good + "announce: {publicKey: '" + keyOf("a").String() + "', privateKeyFile: " + secret + "}\n", "announce.privateKeyFile"},
		"a key":                     {good + "announce: {publicKey: x}\n", "announce.publicKey"},
		"a range with host bits":    {good + "announce: {ranges: [10.0.0.1/8]}\n", "announce.ranges[0]"},
		"an endpoint without port":  {good + "announce: {endpoints: [192.0.2.1]}\n", "announce.endpoints[0]"},
		"an address that is nobody": {good + "announce: {addresses: [0.0.0.0]}\n", "announce.addresses[0]"},
		"a port":                    {good + "healthListen: nowhere\n", "healthListen"},
		"a log level":               {good + "log: {level: loud}\n", "log.level"},
		"an unknown field":          {good + "kubernetes: {}\n", "kubernetes"},
		"no API server":             {kubernetes("{node: n}"), "x.yaml:5:23: sources.kubernetes: "},
		"two API servers":           {kubernetes("{kubeconfig: /k, inCluster: true, node: n}"), "x.yaml:5:51: sources.kubernetes.inCluster"},
		"no Node":                   {kubernetes("{kubeconfig: /k}"), "sources.kubernetes.node"},
		"no Node, in a pod":         {kubernetes("{inCluster: true}"), "NODE_NAME"},
		"a Node with spaces":        {kubernetes("{kubeconfig: /k, node: 'a b'}"), "sources.kubernetes.node"},
		"a Node that goes on":       {kubernetes("{kubeconfig: /k, node: a/../b}"), "sources.kubernetes.node"},
		"two names of the Node":     {kubernetes("{kubeconfig: /k, node: a}") + "announce: {nodename: b}\n", "sources.kubernetes.node"},
		"what is not read":          {kubernetes("{kubeconfig: /k, node: a, read: [secrets]}"), "x.yaml:5:56: sources.kubernetes.read[0]"},
		"what is read twice":        {kubernetes("{kubeconfig: /k, node: a, read: [members, members]}"), "sources.kubernetes.read[1]"},
		"what is not written":       {kubernetes("{kubeconfig: /k, node: a, write: [members, member]}"), "sources.kubernetes.write[1]"},
		"neither read nor written":  {kubernetes("{kubeconfig: /k, read: [], write: []}"), "sources.kubernetes: nothing"},
		"a short lease of objects":  {kubernetes("{kubeconfig: /k, node: a, lease: 59s}"), "sources.kubernetes.lease"},
		"a long lease of objects":   {kubernetes("{kubeconfig: /k, node: a, lease: 31m}"), "sources.kubernetes.lease"},
		"pods of no API server":     {good + "announce: {podRanges: true}\n", "x.yaml:5:23: announce.podRanges: "},
		"pods of no Node":           {kubernetes("{kubeconfig: /k, write: []}") + "announce: {podRanges: true}\n", "announce.podRanges"},
		"pods of many Nodes":        {kubernetes("{kubeconfig: /k, node: a}") + "announce: {podRanges: [a]}\n", "podRanges"},
		"a field of a kubeconfig":   {kubernetes("{kubeconfig: /k, node: a, token: pa55}"), "sources.kubernetes.token"},
		"another kind":              {strings.Replace(good, "MeshConfig", "HubConfig", 1), "kind"},
	} {
		_, err := ParseConfig("x.yaml", []byte(tc.text))
		if !fault.Has(err, fault.CodeConfig) || !strings.Contains(fault.From(err).Error(), tc.place) {
			t.Errorf("%s: %v, want it at %s", name, err, tc.place)
		}
		if err != nil && strings.Contains(err.Error(), "pa55") {
			t.Errorf("%s: %v shows a password", name, err)
		}
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{head + "cluster: {secretFiles: [" + open + "]}\n", head + "cluster: {secretFiles: [/nowhere/at/all]}\n", service("{url: 'https://a', proxyFile: " + open + "}")} {
		if _, err := ParseConfig("x.yaml", []byte(text)); !fault.Has(err, fault.CodeSecret) {
			t.Errorf("%v, want secret_invalid", err)
		}
		if err := CheckConfig("x.yaml", []byte(text)); err != nil {
			t.Errorf("checked for another machine: %v", err)
		}
	}
}

// TestKubernetesOfAConfig: what is left out has a default, and the Node's name is this node's name in Kubernetes.
func TestKubernetesOfAConfig(t *testing.T) {
	base := head + "cluster: {secretFiles: [" + newSecret(t) + "]}\nnode: {name: a}\n"
	t.Setenv("NODE_NAME", "of-the-pod")
	usual := Kubernetes{Kubeconfig: "/k", Node: "n", ReadMembers: true, WriteMember: true, Lease: limit.KubeLease}
	for text, want := range map[string]Kubernetes{
		"sources: {kubernetes: {kubeconfig: /k, node: n}}":                                 usual,
		"sources: {kubernetes: {kubeconfig: /k}}\nannounce: {nodename: n}":                 usual,
		"sources: {kubernetes: {kubeconfig: /k, node: n}}\nannounce: {nodename: n}":        usual,
		"sources: {kubernetes: {inCluster: true}}":                                         {Node: "of-the-pod", ReadMembers: true, WriteMember: true, Lease: limit.KubeLease},
		"sources: {kubernetes: {kubeconfig: /k, write: [], lease: 1m}}":                    {Kubeconfig: "/k", ReadMembers: true, Lease: time.Minute},
		"sources: {kubernetes: {kubeconfig: /k, node: n, read: [], write: [annotations]}}": {Kubeconfig: "/k", Node: "n", WriteAnnotations: true, Lease: limit.KubeLease},
		"sources: {kubernetes: {kubeconfig: /k, node: n.b-1, read: [annotations, members], write: [members, annotations]}}": {Kubeconfig: "/k", Node: "n.b-1", ReadMembers: true,
			ReadAnnotations: true, WriteMember: true, WriteAnnotations: true, Lease: limit.KubeLease},
	} {
		cfg, err := ParseConfig("x.yaml", []byte(base+text+"\n"))
		if err != nil || cfg.Kubernetes == nil || *cfg.Kubernetes != want || cfg.Announce.Nodename != want.Node {
			t.Errorf("%s: %+v, named %q, %v", text, cfg.Kubernetes, cfg.Announce.Nodename, err)
		}
	}
	pods, err := ParseConfig("x.yaml", []byte(base+"announce: {podRanges: true}\nsources: {kubernetes: {kubeconfig: /k, node: n, read: [], write: []}}\n"))
	if err != nil || !pods.PodRanges || pods.Kubernetes.Node != "n" {
		t.Errorf("ranges of pods alone: %+v (%v)", pods.Kubernetes, err)
	}
	if err := CheckConfig("x.yaml", []byte(base+"sources: {kubernetes: {inCluster: true}}\n")); err != nil {
		t.Errorf("checked for another machine, where the pod has a name: %v", err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(head + "sources: {kubernetes: {kubeconfig: /k, node: n, read: [annotations], write: [members, annotations], lease: 5m}}\n"))
	f.Add([]byte(head + "cluster: {secretFiles: [/a, /b], id: x}\nnode: {name: a, stateDir: /s}\nannounce: {lease: 5m, ranges: [10.0.0.0/8]}\n" +
		"sources: {services: [{url: 'https://a', pin: 'AAAA', proxy: 'http://u:p@h'}], file: /f}\ncache: false\n"))
	f.Add([]byte(head + "announce: {endpoints: ['[::1]:1'], publicKey: CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := CheckConfig("x.yaml", data); err != nil && !fault.Has(err, fault.CodeConfig) {
			t.Errorf("%v", err)
		}
	})
}

// TestTheFileOfMembers: what it states counts, a mistake leaves the last good one, and what is gone is gone.
func TestTheFileOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		file := filepath.Join(t.TempDir(), "members.yaml")
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		list := "apiVersion: tombolo.dev/v1alpha1\nkind: MemberList\nmembers:\n"
		a := w.start(setup{name: "a", secrets: []string{secret}, file: file})
		defer a.stop()
		a.knows(settle)
		if s := a.Status()[0]; s.State != StateBroken || s.Code != fault.CodeConfig {
			t.Errorf("the status without a file: %+v", s)
		}
		write(list + "  - name: b\n  - name: c\n")
		a.knows(lookInterval+settle, "b", "c")
		write(list + "  - name: b\n  - mame: c\n")
		a.knows(lookInterval+settle, "b", "c")
		if s := a.Status()[0]; s.State != StateBroken || !strings.Contains(s.Reason, "mame") {
			t.Errorf("the status of a mistake: %+v", s)
		}
		write(list + "  - name: c\n")
		a.knows(lookInterval+settle, "c")
		if s := a.Status()[0]; s.State != StateAttending || s.Members != 1 || !s.Settled {
			t.Errorf("the status: %+v", s)
		}
		a.knows(5*time.Hour, "c")
	})
}

// teller is a source that a test speaks through.
type teller struct{ say chan []roster.Said }

func (s teller) Run(ctx context.Context, out func([]roster.Said)) error {
	for {
		select {
		case said := <-s.say:
			out(said)
		case <-ctx.Done():
			return nil
		}
	}
}

func static(names ...string) (out []roster.Said) {
	for _, n := range names {
		out = append(out, roster.Said{Source: roster.Source{Tier: roster.TierStatic, Name: "test"}, Facts: member.Facts{ID: n, Node: n}})
	}
	return out
}

// TestASlowConsumer is told what has become of all that it missed, and nothing is kept for it.
func TestASlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		source := teller{make(chan []roster.Said)}
		a := w.start(setup{name: "a", secrets: []string{secret}, sources: []Source{source}})
		defer a.stop()
		watch := a.Watch()
		source.say <- static("b", "c")
		time.Sleep(settle)
		events, _, err := watch.Next(t.Context())
		if err != nil || len(events) != 2 || events[0].What != roster.Joined {
			t.Errorf("%+v, %v", events, err)
		}
		for i := range 1000 {
			source.say <- static("b", fmt.Sprint("m", i))
			time.Sleep(time.Second)
		}
		events, result, err := watch.Next(t.Context())
		if err != nil || len(events) != 2 || events[0].Member.Node != "m999" || events[1].What != roster.Left || events[1].Member.Node != "c" || len(result.Members) != 2 {
			t.Errorf("after what was missed: %+v, %v", events, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, _, err := watch.Next(ctx); err != context.DeadlineExceeded {
			t.Errorf("nothing happened, and it says %v", err)
		}
	})
}

// TestReload takes over what is announced, and names the rest.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		s := setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}, dir: t.TempDir()}
		a := w.start(s)
		defer a.stop()
		b := w.start(setup{name: "b", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
		defer b.stop()
		b.knows(settle, "a")
		s.member = func(m *v1alpha1.MeshAnnounce) { m.Hostname = "another" }
		if fixed, err := a.Reload(w.config(s)); err != nil || len(fixed) != 0 {
			t.Errorf("%v, %v", fixed, err)
		}
		b.knows(settle, "a")
		if got := b.member("a").Hostname; got != "another" {
			t.Errorf("the host name is %q", got)
		}
		s.member = nil
		if fixed, err := a.Reload(w.config(s)); err != nil || len(fixed) != 0 {
			t.Errorf("%v, %v", fixed, err)
		}
		b.knows(settle, "a")
		if got := b.member("a").Hostname; got != "" {
			t.Errorf("the host name is taken back, and is %q", got)
		}
		s.services, s.lease = append(s.services, native("two")), time.Minute
		if fixed, err := a.Reload(w.config(s)); err != nil || fmt.Sprint(fixed) != "[announce.lease sources.services]" {
			t.Errorf("%v, %v", fixed, err)
		}
		with := w.config(s)
		with.Kubernetes = &Kubernetes{Kubeconfig: "/k"}
		if fixed, err := a.Reload(with); err != nil || fmt.Sprint(fixed) != "[announce.lease sources.services sources.kubernetes]" {
			t.Errorf("%v, %v", fixed, err)
		}
	})
}

// TestReloadNamesEachFieldOfAService, and what its files hold: nothing of it is taken over.
func TestReloadNamesEachFieldOfAService(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, other := newAuthority(t), newAuthority(t)
	text := func(a authority) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	}
	caFile, proxyFile := write("ca", text(ca)), write("proxy", "http://u:p@proxy:3128")
	usual := v1alpha1.MeshService{URL: "https://one", CAFile: caFile, ProxyFile: proxyFile}
	s := setup{name: "a", secrets: []string{newSecret(t)}, services: []v1alpha1.MeshService{usual}, dir: t.TempDir()}
	a := w.start(s)
	defer a.stop()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.MeshService)
		want   string
	}{
		"nothing":         {func(*v1alpha1.MeshService) {}, "[]"},
		"proxy":           {func(m *v1alpha1.MeshService) { m.Proxy, m.ProxyFile = "none", "" }, "[sources.services]"},
		"another file":    {func(m *v1alpha1.MeshService) { m.ProxyFile = write("proxy2", "http://proxy2:3128") }, "[sources.services]"},
		"what it holds":   {func(m *v1alpha1.MeshService) { write("proxy", "http://u:q@proxy:3128") }, "[sources.services]"},
		"no CA":           {func(m *v1alpha1.MeshService) { m.CAFile = "" }, "[sources.services]"},
		"another CA":      {func(m *v1alpha1.MeshService) { write("ca", text(other)) }, "[sources.services]"},
		"insecure":        {func(m *v1alpha1.MeshService) { m.Insecure = true }, "[sources.services]"},
		"another name":    {func(m *v1alpha1.MeshService) { m.Name = "x" }, "[sources.services]"},
		"another port":    {func(m *v1alpha1.MeshService) { m.URL = "https://one:444" }, "[sources.services]"},
		"a pin":           {func(m *v1alpha1.MeshService) { m.CAFile, m.Pin = "", strings.Repeat("A", 43) }, "[sources.services]"},
		"another version": {func(m *v1alpha1.MeshService) { m.Protocol = "native" }, "[sources.services]"},
	} {
		write("ca", text(ca))
		write("proxy", "http://u:p@proxy:3128")
		next := usual
		tc.change(&next)
		s.services = []v1alpha1.MeshService{next}
		if fixed, err := a.Reload(w.config(s)); err != nil || fmt.Sprint(fixed) != tc.want {
			t.Errorf("%s: %v, %v, want %v", name, fixed, err, tc.want)
		}
	}
}
