// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// The files of the edge. The hub is a tenant by what agents offer in their handshake (ALPN): a hub has no name here.
const (
	edgeConfig = `apiVersion: tombolo.dev/v1alpha1
kind: EdgeConfig
listeners: [{name: tls, listen: %q, protocol: tls}]
tenants: [%q]
policies: [%q]
healthListen: %q
runDir: %q
audit: {path: %q}
`
	edgeTenant = `apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: hub}
spec:
  protected: true
  ways: [{flow: vpn, protocols: [%s, %s], upstreams: [%q]}]
`
	edgePolicy = `apiVersion: tombolo.dev/v1alpha1
kind: AccessPolicy
rules: [{name: gateways, clusters: [hub], flows: [vpn], sources: [%s], allow: ["*"]}]
`
)

// startEdge puts an edge in front of the hub, which agents reach through it alone.
func (p *play) startEdge(ctx context.Context) (string, error) {
	s := p.stage
	file := func(name string) string { return filepath.Join(s.dir, "edge-"+name) }
	for path, text := range map[string]string{
		file("config.yaml"): fmt.Sprintf(edgeConfig, s.front, file("tenant.yaml"), file("policy.yaml"), s.edgeHealth,
			s.runDir(), file("audit.jsonl")),
		file("tenant.yaml"): fmt.Sprintf(edgeTenant, trust.ALPNSession, trust.ALPNJoin, s.listen),
		file("policy.yaml"): fmt.Sprintf(edgePolicy, strings.Join(s.sources, ", ")),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	s.edge.args = []string{"edge", "--config", file("config.yaml")}
	if err := s.start(s.edge); err != nil {
		return "", err
	}
	err := until(ctx, s.edge, startWithin, func(ctx context.Context) error {
		return ready(ctx, s.edge.host, "http://"+s.edgeHealth+"/readyz", nil)
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the edge: %w", err)
	}
	return fmt.Sprintf("listens on %s for the hub; its policy lets %s in", s.front, strings.Join(s.sources, " and ")), nil
}

// refuseSource speaks to the edge as an agent does, from an address that no rule allows.
func (p *play) refuseSource(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	conn, err := p.stage.unlisted(ctx, p.stage.front)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	from, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		return "", err
	}
	// Nothing is trusted, since nothing is to be shown: only whether somebody answers.
	client := tls.Client(conn, &tls.Config{
		ServerName: "hub", RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13,
		NextProtos: []string{trust.ALPNSession},
	})
	var alert tls.AlertError
	var op *net.OpError
	err = client.HandshakeContext(ctx)
	if !errors.As(err, &alert) && !errors.As(err, &op) {
		return "", fmt.Errorf("%s was not refused: %w", from, err)
	}
	record, said := audit.Record{}, err
	err = until(ctx, p.stage.edge, fetchWithin, func(context.Context) error {
		record, err = p.refusalOf(from)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the edge's record: %w", err)
	}
	return fmt.Sprintf("%s: %s\naudit record: %s: %s", from, rootCause(said), record.Code, record.Reason), nil
}

// refusalOf finds the edge's record of a refused source.
func (p *play) refusalOf(from string) (audit.Record, error) {
	data, err := os.ReadFile(filepath.Join(p.stage.dir, "edge-audit.jsonl"))
	if err != nil {
		return audit.Record{}, err
	}
	for line := range bytes.Lines(data) {
		var r audit.Record
		denied := json.Unmarshal(line, &r) == nil && r.Code == string(fault.CodePolicyDenied)
		if denied && strings.HasPrefix(r.Source, from+":") {
			return r, nil
		}
	}
	return audit.Record{}, errors.New("there is no record of the refusal yet")
}
