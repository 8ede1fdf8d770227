// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestExtAuthz runs the command, asks it over its unix socket, and changes a tenant and the policy.
func TestExtAuthz(t *testing.T) {
	dir := runtest.Dir(t)
	versions := 0
	write := func(name, text string) { // as the kubelet does for a mounted ConfigMap: all of it moves at once
		t.Helper()
		versions++
		folder, file := filepath.Join(dir, filepath.Dir(name)), filepath.Base(name)
		version := fmt.Sprintf("..v%d", versions)
		for _, err := range []error{
			os.MkdirAll(filepath.Join(folder, version), 0o755),
			os.WriteFile(filepath.Join(folder, version, file), []byte(text), 0o644),
			os.Symlink(version, filepath.Join(folder, "..data_tmp")),
			os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Lstat(filepath.Join(folder, file)); err != nil {
			if err := os.Symlink(filepath.Join("..data", file), filepath.Join(folder, file)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tenant := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: c1}\nspec:\n  ways:\n" +
		"  - {flow: api, names: [%s.example.org], upstreams: ['192.0.2.1:6443']}\n"
	rules := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n" +
		"- {name: r, clusters: [c1], flows: [api], sources: [%s], allow: ['*']}\n"
	write("tenants/c1.yaml", fmt.Sprintf(tenant, "c1"))
	write("policies/c1.yaml", fmt.Sprintf(rules, "203.0.113.0/24"))
	socket := filepath.Join(dir, "run", "s")
	p := startProcess(t, "edge", "ext-authz", "--listen", "unix:"+socket, "--policies", filepath.Join(dir, "policies"),
		"--tenants", filepath.Join(dir, "tenants"), "--health-listen", runtest.Address(9192), "--audit", "-")
	p.Says(t, "external authorization is ready")
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	at := func(ip string) *authv3.AttributeContext_Peer {
		return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 443}},
		}}}
	}
	answer := func(name string) string {
		ctx, cancel := context.WithTimeout(t.Context(), runtest.Patience)
		defer cancel()
		out, err := authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Source: at("203.0.113.1"), Destination: at("10.0.0.1"), TlsSession: &authv3.AttributeContext_TLSSession{Sni: name},
		}})
		if err != nil {
			t.Fatal(err)
		}
		m := out.DynamicMetadata.Fields
		return m["verdict"].GetStringValue() + m["code"].GetStringValue()
	}
	if got := answer("c1.example.org"); got != "allow" {
		t.Fatal(got)
	}
	write("tenants/c1.yaml", fmt.Sprintf(tenant, "moved"))
	runtest.Eventually(t, "the tenant has its new name", func() bool {
		return answer("moved.example.org") == "allow" && answer("c1.example.org") == "denyname_unknown"
	})
	write("policies/c1.yaml", fmt.Sprintf(rules, "192.0.2.0/24"))
	runtest.Eventually(t, "the policy refuses", func() bool { return answer("moved.example.org") == "denypolicy_denied" })
	write("policies/c1.yaml", "rules: 1\n") // its last good content stays
	p.Says(t, "its last good content stays")
	if got := answer("moved.example.org"); got != "denypolicy_denied" {
		t.Error(got)
	}
}

func TestExtAuthzWithoutItsFiles(t *testing.T) {
	wantExit(t, tombolo(t, "edge", "ext-authz"), 2, "--policies and --tenants are needed")
	wantExit(t, tombolo(t, "edge", "ext-authz", "--config-maps", "gateways", "--tenants", "."), 2, "exclude each other")
	wantExit(t, tombolo(t, "edge", "ext-authz", "--config-maps", "a/b"), 2, "not the name of a namespace")
	wantExit(t, tombolo(t, "edge", "ext-authz", "--policies", ".", "--tenants", ".", "--kubeconfig", "x"), 2,
		"--kubeconfig is for --config-maps")
	bad := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(bad, []byte("kind: nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := tombolo(t, "edge", "ext-authz", "--policies", bad, "--tenants", ".") // log lines come before the error
	if o.code != 2 || !strings.Contains(o.err, "error: config_invalid: the policy "+bad) {
		t.Errorf("%+v", o)
	}
}
