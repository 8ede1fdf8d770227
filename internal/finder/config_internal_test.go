// SPDX-License-Identifier: Apache-2.0

package finder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
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
		"a protocol":                {service("{url: 'https://a', protocol: tomorrow}"), "sources.services[0].protocol"},
		"the older one, no id":      {service("{url: 'https://a', protocol: sidero}"), "sources.services[0].protocol"},
		"a name twice":              {service("{url: 'https://a'}, {url: 'https://a:443'}"), "sources.services[1].name"},
		"too many services":         {service(many(limit.FinderServices + 1)), "sources.services"},
		"a proxy":                   {service("{url: 'https://a', proxy: 'socks5://user:pa55@p'}"), "sources.services[0].proxy"},
		"a proxy and its file":      {service("{url: 'https://a', proxy: none, proxyFile: " + secret + "}"), "sources.services[0].proxyFile"},
		"a short lease":             {good + "announce: {lease: 1s}\n", "announce.lease"},
		"a long lease":              {good + "announce: {lease: 31m}\n", "announce.lease"},
		"a key":                     {good + "announce: {publicKey: x}\n", "announce.publicKey"},
		"a range with host bits":    {good + "announce: {ranges: [10.0.0.1/8]}\n", "announce.ranges[0]"},
		"an endpoint without port":  {good + "announce: {endpoints: [192.0.2.1]}\n", "announce.endpoints[0]"},
		"an address that is nobody": {good + "announce: {addresses: [0.0.0.0]}\n", "announce.addresses[0]"},
		"a port":                    {good + "healthListen: nowhere\n", "healthListen"},
		"a log level":               {good + "log: {level: loud}\n", "log.level"},
		"an unknown field":          {good + "kubernetes: {}\n", "kubernetes"},
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

func FuzzConfig(f *testing.F) {
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
		a.knows(limit.FinderLook+settle, "b", "c")
		write(list + "  - name: b\n  - mame: c\n")
		a.knows(limit.FinderLook+settle, "b", "c")
		if s := a.Status()[0]; s.State != StateBroken || !strings.Contains(s.Reason, "mame") {
			t.Errorf("the status of a mistake: %+v", s)
		}
		write(list + "  - name: c\n")
		a.knows(limit.FinderLook+settle, "c")
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
		out = append(out, roster.Said{Source: roster.Source{Tier: roster.TierStatic, Name: "test"}, Facts: roster.Facts{ID: n, Node: n}})
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
		s.services, s.lease = append(s.services, native("two")), time.Minute
		if fixed, err := a.Reload(w.config(s)); err != nil || fmt.Sprint(fixed) != "[announce.lease sources.services]" {
			t.Errorf("%v, %v", fixed, err)
		}
	})
}
