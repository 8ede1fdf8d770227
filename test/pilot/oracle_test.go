// SPDX-License-Identifier: Apache-2.0

//go:build pilot

// Package pilot asks Istio's own pilot and gRPC's RBAC engine what the objects decide that are written for access lists.
// Both are in a program of its own, which is built from oracle/ and cached.
package pilot

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/test/kube/tools"
)

// The lines that the oracle reads and writes: oracle/main.go says what they mean.
type (
	world struct {
		Objects   []any      `json:"objects"`
		Gateway   pod        `json:"gateway"`
		Providers []provider `json:"providers"`
		Questions []question `json:"questions"`
		Dump      bool       `json:"dump"`
	}
	pod struct {
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
		Addresses []string          `json:"addresses"`
		DualStack bool              `json:"dualStack"`
	}
	provider struct {
		Name    string `json:"name"`
		Service string `json:"service"`
		Port    uint32 `json:"port"`
	}
	question struct {
		Port     uint32              `json:"port"`
		Listener string              `json:"listener"`
		To       string              `json:"to"`
		SNI      string              `json:"sni"`
		TLS      bool                `json:"tls"`
		Headers  map[string][]string `json:"headers"`
		Each     bool                `json:"each"`
		From     string              `json:"from"`
	}
	reply struct {
		Error     string
		Invalid   []string
		Listeners []listener
		Answers   []answer
	}
	listener struct {
		Name   string
		Port   uint32
		Chains []chain
	}
	chain struct {
		Names   []string
		Filters []chainFilter
		Leads   []string
		Dump    json.RawMessage
	}
	chainFilter struct {
		Name, Kind string
		HTTP       bool
		Policies   []string
	}
	answer struct {
		Error    string
		None     bool
		Listener string
		Chain    int
		Allow    bool
		By       string
		Asks     []string
		Leads    []string
	}
)

// oracle is the program while it runs.
type oracle struct {
	in  *json.Encoder
	out *json.Decoder
}

// start starts the program; the first time it is built, which takes minutes.
func start(t *testing.T) *oracle {
	t.Helper()
	repo, err := tools.Repo()
	if err != nil {
		t.Fatal(err)
	}
	path, err := tools.EnsureOracle(t.Context(), repo, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil { // it ends with its input
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &oracle{json.NewEncoder(in), json.NewDecoder(out)}
}

// failing is what tests of both kinds have.
type failing interface {
	Helper()
	Fatal(args ...any)
}

// ask gives a world to the oracle. It fails where the oracle does not know something.
func (o *oracle) ask(t failing, w world) reply {
	t.Helper()
	r := o.tell(t, w)
	if r.Error != "" || len(r.Answers) != len(w.Questions) {
		t.Fatal(fmt.Sprintf("%d answers to %d questions: %s", len(r.Answers), len(w.Questions), r.Error))
	}
	for i, a := range r.Answers {
		if a.Error != "" {
			t.Fatal(fmt.Sprintf("%+v: %s", w.Questions[i], a.Error))
		}
	}
	if len(r.Invalid) > 0 {
		t.Fatal("Envoy would not take it: ", r.Invalid)
	}
	return r
}

// tell gives a world to the oracle, whatever it knows.
func (o *oracle) tell(t failing, w world) (r reply) {
	t.Helper()
	if err := o.in.Encode(w); err != nil {
		t.Fatal(err)
	}
	if err := o.out.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

// objects are those of some facts, as Kubernetes has them.
func objects(f istio.Facts) (out []any) {
	for _, o := range f.Gateways {
		o.TypeMeta = istio.TypeMeta{APIVersion: istio.APINetworking, Kind: "Gateway"}
		text, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		simple := `"mode":"SIMPLE"` // of the certificate nothing is read there
		out = append(out, json.RawMessage(strings.ReplaceAll(string(text), simple, simple+`,"credentialName":"certificate"`)))
	}
	for _, o := range f.VirtualServices {
		o.TypeMeta = istio.TypeMeta{APIVersion: istio.APINetworking, Kind: "VirtualService"}
		out = append(out, o)
	}
	for _, o := range f.EnvoyFilters {
		o.TypeMeta = istio.TypeMeta{APIVersion: istio.APINetworking, Kind: istio.KindEnvoyFilter}
		out = append(out, o)
	}
	for _, o := range f.AuthorizationPolicies {
		o.TypeMeta = istio.TypeMeta{APIVersion: istio.APISecurity, Kind: istio.KindAuthorizationPolicy}
		out = append(out, o)
	}
	for _, o := range f.Services {
		o.TypeMeta = istio.TypeMeta{APIVersion: "v1", Kind: "Service"}
		out = append(out, o)
	}
	return out
}
