// SPDX-License-Identifier: Apache-2.0

package gardener

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
)

// replicas is how many VPN servers a highly available shoot may have (-0 to -4).
const replicas = 5

// Destinations are the exact values by which the gateways route to a shoot's control plane: VPN are those of its VPN
// servers, API those of its API server.
func Destinations(technicalID string) (vpn, api []string) {
	for i := range replicas + 1 {
		d := connecthead.Destination{Kind: connecthead.VPN, Namespace: technicalID, Replica: int8(i - 1)}
		vpn = append(vpn, d.String())
	}
	for _, kind := range []connecthead.Kind{connecthead.API, connecthead.Socket} {
		api = append(api, connecthead.Destination{Kind: kind, Namespace: technicalID}.String())
	}
	return vpn, api
}

// ShortID is a technical ID as names of the seed's ingress have it: without "shoot" and its dashes.
func ShortID(technicalID string) string {
	for _, prefix := range []string{"shoot--", "shoot-"} {
		if rest, ok := strings.CutPrefix(technicalID, prefix); ok {
			return rest
		}
	}
	return technicalID
}

// IngressSuffix is what the names of a shoot's observability components end with.
func IngressSuffix(technicalID, ingressDomain string) string {
	return "-" + ShortID(technicalID) + "." + ingressDomain
}

// Hosts are the names of a shoot's API server by its advertised addresses, which are URLs, sorted and each once.
// Addresses without a name are left out: no server name leads to them.
func Hosts(advertised []string) ([]string, error) {
	var out []string
	for i, text := range advertised {
		full := text
		if !strings.Contains(text, "://") {
			full = "https://" + text
		}
		u, err := url.Parse(full)
		if err != nil || u.Hostname() == "" {
			return nil, fault.Newf(fault.CodeConfig, "status.advertisedAddresses[%d] is no address", i).Whyf("it is %q", text)
		}
		name, err := hostname.Parse(u.Hostname())
		if err != nil {
			if _, failed := netip.ParseAddr(u.Hostname()); failed == nil {
				continue
			}
			return nil, fault.Newf(fault.CodeConfig, "status.advertisedAddresses[%d] is no address", i).Because(err)
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return nil, fault.New(fault.CodeConfig, "the shoot has no name by which its API server is reached").
			Whyf("status.advertisedAddresses has %d entries, none with a name", len(advertised)).
			Hint("wait until Gardener has filled it in")
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
