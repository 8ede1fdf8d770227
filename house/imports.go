// SPDX-License-Identifier: Apache-2.0

package house

import (
	"slices"
	"strings"
)

// doorRule restricts a package to the folders that may import it. It applies to all
// Go files of the main module, including tests unless Tests is set.
type doorRule struct {
	Import string   // path; "x/..." is x and all below
	Places []string // folders that may; see within
	Tests  bool     // test files and test twins may too
	Why    string
}

func doorRules() []doorRule {
	return []doorRule{
		{"k8s.io/client-go/...", []string{"internal/base/kube/...", "internal/control/..."}, false,
			"one place talks to Kubernetes: the rest gets values"},
		{"sigs.k8s.io/controller-runtime/...", []string{"internal/control/..."}, false,
			"only the controller has it: it is large (docs/decisions/0025)"},
		{"k8s.io/apimachinery/...", []string{"api/objects/v1alpha1", "internal/base/kube/...", "internal/control/..."}, false,
			"Kubernetes' types are large (docs/decisions/0025): the rest gets values"},
		{"k8s.io/api/...", []string{"internal/base/kube/...", "internal/control/..."}, false,
			"Kubernetes' types are large (docs/decisions/0025): the rest gets values"},
		{"github.com/vishvananda/netlink/...", []string{"internal/mesh/kernel/...", "internal/demo/network", "test/lab/..."},
			false,
			"one place changes the kernel, as a difference of plans"},
		{"github.com/vishvananda/netns/...", []string{"internal/mesh/kernel/...", "test/...", "internal/demo/..."}, false,
			"switching namespaces pins a thread: few may know how"},
		{"github.com/google/nftables/...", []string{"internal/mesh/kernel/...", "internal/demo/network", "test/lab/..."},
			false,
			"one place changes the kernel, as a difference of plans"},
		{"golang.zx2c4.com/wireguard/wgctrl/...", []string{"internal/mesh/kernel/...", "test/lab/..."}, false,
			"one place changes the kernel, as a difference of plans"},
		{"github.com/libp2p/go-yamux/...", []string{"test/yamux"}, false,
			"the product has a mux of its own; the library is its baseline (docs/decisions/0012)"},
		{"github.com/gaissmai/bart", []string{"internal/access/policy"}, false,
			"who may reach what is decided by policy.Decide: no other package compares ranges"},
		{"github.com/quic-go/quic-go/...", []string{"internal/mesh/keyconn"}, false,
			"one place knows QUIC: the rest sees connections"},
		{"gvisor.dev/gvisor/...", []string{"internal/route/netstack"}, true,
			"one place knows the network stack: the rest sees connections"},
		{"go.etcd.io/bbolt", []string{"internal/base/store/...", "internal/stream/hub/state"}, false,
			"the file format is one package's business"},
		{"go.etcd.io/etcd/...", []string{"internal/discovery/etcd", "test/etcd"}, false,
			"one store knows etcd: the rest sees members on a board"},
		{"github.com/spf13/cobra/...", []string{"cmd/...", "deploy/..."}, false,
			"rooms know no command line"},
		{"sigs.k8s.io/apiserver-network-proxy/...", []string{"test/..."}, true,
			"the reference is a measure for tests: no program links it (docs/decisions/0040)"},
		{"go.opentelemetry.io/...", []string{"internal/base/otlp/...", "test/..."}, true,
			"one place knows OpenTelemetry: the rest sees spans that cost nothing when turned off"},
		{"golang.org/x/sync/errgroup", nil, false,
			"goroutines have their owner in internal/base/run"},
		{"gopkg.in/yaml.v3", nil, false, "use go.yaml.in/yaml/v3, its maintained successor"},
		{"gopkg.in/yaml.v2", nil, false, "use go.yaml.in/yaml/v3"},
		{"math/rand", nil, false, "use math/rand/v2: no global seed, no modulo bias; crypto/rand for secrets"},
		{"log", nil, false, "a *slog.Logger comes by constructor"},
		{"io/ioutil", nil, false, "replaced by io and os"},
		{"github.com/pkg/errors", nil, false, "fmt.Errorf with percent-w, or a fault"},
		{"github.com/prometheus/client_golang/prometheus/promauto", nil, false,
			"it registers into a global: register into the registry that the constructor got"},
		{"expvar", nil, false, "it registers into the default mux on import"},
		{"testing", []string{"test/..."}, true, "product code carries no test code"},
		{"pgregory.net/rapid", nil, true, "product code carries no test code"},
		{"go.uber.org/goleak", nil, true, "product code carries no test code"},
	}
}

func checkImports(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go(func(f *File) bool { return !f.Generated && mainModule(f) }) {
		for _, spec := range f.AST.Imports {
			for _, r := range doorRules() {
				testing := f.Test() || isTwin(f.Dir())
				if !within(importPath(spec), []string{r.Import}) || within(f.Dir(), r.Places) || r.Tests && testing {
					continue
				}
				where := "nobody may"
				if len(r.Places) > 0 {
					where = "only " + strings.Join(r.Places, ", ") + " may"
				}
				out = append(out, t.breach(f, spec, "imports %s, %s: %s", importPath(spec), where, r.Why))
			}
		}
	}
	return out
}

// mainModule reports whether a Go file belongs to the main module, and not to the
// modules under tools and test/kube/tools, which may choose their libraries.
func mainModule(f *File) bool {
	return !slices.ContainsFunc([]string{"tools/", "test/kube/tools/", "house/"}, func(p string) bool {
		return strings.HasPrefix(f.Path, p)
	})
}
