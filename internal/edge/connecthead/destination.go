// SPDX-License-Identifier: Apache-2.0

package connecthead

import (
	"fmt"
	"strings"
)

// Kind says what a destination is.
type Kind uint8

// The kinds.
const (
	VPN    Kind = iota + 1 // the OpenVPN server of a shoot
	API                    // the kube-apiserver of a shoot
	Socket                 // the kube-apiserver of a shoot, where Istio ends TLS
)

// Destination is one of the forms that Gardener routes by: names of Envoy clusters. It is comparable.
type Destination struct {
	Kind      Kind
	Namespace string // of the control plane; technical id of the shoot
	Replica   int8   // of the VPN server, 0 to 4; -1: the only one
}

const domain = ".svc.cluster.local"

// ParseDestination reads a header's value: exactly one of
//
//	outbound|1194||vpn-seed-server[-N].<namespace>.svc.cluster.local
//	outbound|443||kube-apiserver.<namespace>.svc.cluster.local
//	<namespace>--kube-apiserver-socket
func ParseDestination(s string) (Destination, error) {
	if namespace, ok := strings.CutSuffix(s, "--kube-apiserver-socket"); ok {
		return Destination{Socket, namespace, -1}.checked(s)
	}
	rest, ok := strings.CutSuffix(s, domain)
	if !ok {
		return Destination{}, unknownForm(s)
	}
	if namespace, ok := strings.CutPrefix(rest, "outbound|443||kube-apiserver."); ok {
		return Destination{API, namespace, -1}.checked(s)
	}
	rest, ok = strings.CutPrefix(rest, "outbound|1194||vpn-seed-server")
	if !ok {
		return Destination{}, unknownForm(s)
	}
	replica, namespace, _ := strings.Cut(rest, ".")
	d := Destination{VPN, namespace, -1}
	if len(replica) == 2 && replica[0] == '-' && '0' <= replica[1] && replica[1] <= '4' {
		d.Replica = int8(replica[1] - '0')
	} else if replica != "" {
		return Destination{}, unknownForm(s)
	}
	return d.checked(s)
}

// checked accepts a namespace that is one label (RFC 1123), and nothing that is written in two ways.
func (d Destination) checked(s string) (Destination, error) {
	ns := d.Namespace
	if ns == "" || len(ns) > 63 || ns[0] == '-' || ns[len(ns)-1] == '-' ||
		strings.Trim(ns, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || d.String() != s {
		return Destination{}, unknownForm(s)
	}
	return d, nil
}

// String renders what ParseDestination reads.
func (d Destination) String() string {
	switch d.Kind {
	case VPN:
		if d.Replica >= 0 {
			return fmt.Sprintf("outbound|1194||vpn-seed-server-%d.%s%s", d.Replica, d.Namespace, domain)
		}
		return "outbound|1194||vpn-seed-server." + d.Namespace + domain
	case API:
		return "outbound|443||kube-apiserver." + d.Namespace + domain
	case Socket:
		return d.Namespace + "--kube-apiserver-socket"
	}
	return ""
}

// Service is the address that the destination stands for, as host:port; empty for a socket, which has none.
func (d Destination) Service() string {
	parts := strings.Split(d.String(), "|")
	if len(parts) != 4 {
		return ""
	}
	return parts[3] + ":" + parts[1]
}

func unknownForm(s string) error {
	return fmt.Errorf("%.200q is none of the known forms of a destination", s)
}
