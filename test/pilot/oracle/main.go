// SPDX-License-Identifier: Apache-2.0

// Command oracle says what a gateway of Istio decides. Istio's own pilot makes the listeners, and the RBAC engine of
// gRPC decides by the filters in them; nothing of Tombolo is in it. Each line of its input is a World with questions,
// each line of its output a Reply. What it does not know it reports as an error, and never as allowed.
//
// It is a program and a module of its own: the engine is internal to google.golang.org/grpc, and the dependencies of
// Istio shall not be ours.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"istio.io/istio/pkg/log"
)

// World are the objects of a cluster as JSON, one of its gateways, and what is asked about it.
type World struct {
	Objects   []json.RawMessage `json:"objects"`
	Gateway   Gateway           `json:"gateway"`
	Providers []Provider        `json:"providers"`
	Questions []Question        `json:"questions"`
	Dump      bool              `json:"dump"` // the chains as Envoy gets them
}

// Gateway is a pod of a gateway.
type Gateway struct {
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
	Addresses []string          `json:"addresses"` // the first one decides about the names of listeners
	DualStack bool              `json:"dualStack"` // of Istio's installation
}

// Provider is one for ext_authz by gRPC in the mesh's configuration.
type Provider struct {
	Name    string `json:"name"`
	Service string `json:"service"`
	Port    uint32 `json:"port"`
}

// Question is a connection or a request.
type Question struct {
	Port     uint32              `json:"port"`
	Listener string              `json:"listener"` // instead of a port, for one that has none
	To       string              `json:"to"`       // address and port, where a PROXY header names others
	SNI      string              `json:"sni"`
	TLS      bool                `json:"tls"`
	Headers  map[string][]string `json:"headers"`
	Each     bool                `json:"each"` // values of a repeated header are compared one by one, not joined
	From     string              `json:"from"`
}

// Reply are the listeners of the gateway, and the answers in the order of the questions.
type Reply struct {
	Error     string     `json:"error,omitempty"`
	Invalid   []string   `json:"invalid,omitempty"` // what Envoy would refuse
	Listeners []Listener `json:"listeners,omitempty"`
	Answers   []Answer   `json:"answers,omitempty"`
}

// Listener is one of the gateway.
type Listener struct {
	Name   string  `json:"name"`
	Port   uint32  `json:"port"`
	Chains []Chain `json:"chains"`
}

// Chain is a filter chain.
type Chain struct {
	Names   []string        `json:"names,omitempty"` // server names
	Filters []Filter        `json:"filters"`
	Leads   []string        `json:"leads"` // clusters of Envoy; header:x is the one that a header names
	Dump    json.RawMessage `json:"dump,omitempty"`
}

// Filter is one of a chain, in the order of Envoy.
type Filter struct {
	Name     string   `json:"name"`
	HTTP     bool     `json:"http,omitempty"`
	Kind     string   `json:"kind"` // rbac, ext_authz, end, other
	Policies []string `json:"policies,omitempty"`
}

// Answer is what the gateway decides.
type Answer struct {
	Error    string   `json:"error,omitempty"`
	None     bool     `json:"none,omitempty"` // no chain takes the connection
	Listener string   `json:"listener,omitempty"`
	Chain    int      `json:"chain"`
	Allow    bool     `json:"allow"`
	By       string   `json:"by,omitempty"`    // the filter that refuses
	Asks     []string `json:"asks,omitempty"`  // clusters of Envoy that ext_authz asks: they have a say too
	Leads    []string `json:"leads,omitempty"` // clusters of Envoy where it may go
}

func main() {
	for _, s := range log.Scopes() { // standard output has replies only
		s.SetOutputLevel(log.NoneLevel)
	}
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	in.DisallowUnknownFields()
	out := json.NewEncoder(os.Stdout)
	for in.More() {
		var w World
		if err := in.Decode(&w); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		if err := out.Encode(reply(w)); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	}
}

func reply(w World) (r Reply) {
	built, err := build(w)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	for _, l := range built {
		r.Listeners = append(r.Listeners, l.told)
		for _, err := range validate(l.listener) {
			r.Invalid = append(r.Invalid, l.told.Name+": "+err.Error())
		}
	}
	made := engines{}
	for _, q := range w.Questions {
		r.Answers = append(r.Answers, answer(built, q, made))
	}
	return r
}
