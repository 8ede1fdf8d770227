// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"errors"
	"net"
	"net/url"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	tunnel "github.com/tombolo-io/tombolo/internal/base/proxy"
)

// dialer makes connections; the tests have another one than net.Dialer.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// dial reaches a service, through a proxy if there is one for it.
func (s Service) dial(ctx context.Context, dial dialer, to place, address string) (net.Conn, error) {
	u, err := url.Parse(to.String())
	if err != nil {
		return nil, err
	}
	conn, err := tunnel.Dialer{Dial: dial, Choose: s.Proxy, Shown: shown}.Through(ctx, u, address)
	var refused *tunnel.Refusal
	if errors.As(err, &refused) {
		return nil, proxyFault(refused.Why)
	}
	return conn, err
}

// proxyFault names neither the proxy's user nor its password.
func proxyFault(why string) *fault.Fault {
	return fault.New(fault.CodeServiceAway, "the proxy does not lead to the discovery service").Whyf("%s", why).
		Hint("correct the proxy of the service in the configuration, or HTTPS_PROXY")
}
