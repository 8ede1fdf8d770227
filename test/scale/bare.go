// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/test/roles"
)

// bareRole is the measure of a storm: it ends TLS with a hub's certificate, asks
// for the agent's, says one byte, and does nothing else.
type bareRole struct{ ln net.Listener }

// bareArgs start it.
type bareArgs struct {
	Listen string `json:"listen"`
	CA     []byte `json:"ca"`
	CAKey  []byte `json:"caKey"`
}

// Do implements roles.Role.
func (r *bareRole) Do(op string, raw json.RawMessage) (any, error) {
	if op != opStart {
		return nil, roles.ErrUnknown
	}
	args, err := roles.Arguments[bareArgs](raw)
	if err != nil {
		return nil, err
	}
	ca, err := trust.ParseAuthority(args.CA, args.CAKey)
	if err != nil {
		return nil, err
	}
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleHub, Name: "bare"}, Key: key.Public(), Life: limit.HubCertificate}, time.Now())
	if err != nil {
		return nil, err
	}
	// As the hub's main port has it.
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{trust.ALPNSession}, ClientAuth: tls.RequestClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw, ca.Certificate().Raw}, PrivateKey: key, Leaf: leaf}},
	}
	if r.ln, err = net.Listen("tcp", args.Listen); err != nil {
		return nil, err
	}
	go func() {
		for {
			raw, err := r.ln.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer raw.Close()
				conn := tls.Server(carrier.Wrap(raw), conf)
				if conn.Handshake() == nil {
					conn.Write([]byte{1})
					conn.Read(make([]byte, 1)) // until the agent closes
				}
			}()
		}
	}()
	return nil, nil
}
