// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/edge"
	"github.com/tombolo-io/tombolo/test/roles"
)

// edgeArgs start the product's edge.
type edgeArgs struct {
	Dir       string   `json:"dir"` // for its files and its log
	Listen    []string `json:"listen"`
	Name      string   `json:"name"` // of the server
	Upstreams []string `json:"upstreams"`
}

// edgeRoom is the role of the product's edge, with a protected tenant and a policy that lets it in.
type edgeRoom struct{ traffic }

func (r *edgeRoom) counters() *traffic { return &r.traffic }

func (r *edgeRoom) do(op string, raw json.RawMessage) (any, error) {
	switch op {
	case opStart:
	case opDescriptors:
		return roles.Descriptors(os.Getpid())
	default:
		return nil, roles.ErrUnknown
	}
	args, err := roles.Arguments[edgeArgs](raw)
	if err != nil {
		return nil, err
	}
	log, err := logTo(args.Dir, "edge")
	if err != nil {
		return nil, err
	}
	const kind = "apiVersion: tombolo.dev/v1alpha1\nkind: "
	tenants, policy := filepath.Join(args.Dir, "tenants"), filepath.Join(args.Dir, "policy.yaml")
	if err := os.Mkdir(tenants, 0o700); err != nil {
		return nil, err
	}
	for path, text := range map[string]string{
		filepath.Join(tenants, cluster+".yaml"): fmt.Sprintf("EdgeTenant\nmetadata: {name: %s}\nspec:\n  protected: true\n"+
			"  ways: [{flow: api, names: [%q], upstreams: [%s]}]\n", cluster, args.Name, quoted(args.Upstreams)),
		policy: "AccessPolicy\nrules:\n- {name: all, clusters: [" + cluster + "], flows: [api], " +
			"sources: [127.0.0.0/8], allow: ['*']}\n",
	} {
		if err := os.WriteFile(path, []byte(kind+text), 0o600); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf("EdgeConfig\nhealthListen: %q\nrunDir: %q\ntenants: [%q]\npolicies: [%q]\n"+
		"limits: {perSource: 1000000, perCluster: 1000000}\nlisteners:\n", ownAddress(8447), args.Dir, tenants, policy)
	for i, address := range args.Listen {
		text += fmt.Sprintf("- {name: tls%d, listen: %q, protocol: tls}\n", i, address)
	}
	cfg, err := edge.ParseConfig("edge.yaml", []byte(kind+text))
	if err != nil {
		return nil, err
	}
	e := edge.New(cfg, edge.Options{Log: log, Reg: prometheus.NewRegistry()})
	go func() {
		if err := e.Run(context.Background(), context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "edge:", err)
		}
	}()
	return started{}, nil
}

// quoted is a list as YAML has it.
func quoted(all []string) string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}
