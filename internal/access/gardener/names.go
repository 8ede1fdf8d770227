// SPDX-License-Identifier: Apache-2.0

package gardener

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
)

func count(n int) string { return strconv.Itoa(n) }

// cut bounds a text of a user within a path.
func cut(s string) string {
	if clean := strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_"); clean == "" && len(s) <= 63 {
		return s
	}
	return fmt.Sprintf("%.63q", s)
}

// Names are those by which clients reach a shoot.
type Names struct {
	TechnicalID string   // the namespace of its control plane; in policies the name of the cluster
	ShortID     string   // in the names of its Ingresses
	API         []string // server names of its API server, sorted
	Ingress     []string // server names of what else is published for it; * stands for any beginning
	// Destinations are the values of headers at CONNECT ports, by flow.
	VPN, Proxy []string
}

// ShortID is the technical id of a shoot without its beginning, which has one or two hyphens.
func ShortID(technicalID string) string {
	rest, ok := strings.CutPrefix(technicalID, "shoot-")
	if !ok {
		return technicalID
	}
	return strings.TrimPrefix(rest, "-")
}

// Names are the shoot's, from its status and the domain of the seed's Ingresses.
func (f Facts) Names() (Names, []Problem) {
	shoot := f.Cluster.Spec.Shoot
	ps := problems{object: "Shoot " + shoot.Metadata.Namespace + "/" + shoot.Metadata.Name}
	id := shoot.Status.TechnicalID
	if id == "" {
		id = f.Cluster.Metadata.Name
	}
	out := Names{TechnicalID: id, ShortID: ShortID(id)}
	if _, err := connecthead.ParseDestination(destination(connecthead.API, id, -1)); err != nil {
		ps.refuse("status.technicalID", Invalid, "", "%.100q is no namespace", id)
		return Names{}, ps.all()
	}
	for i, a := range shoot.Status.AdvertisedAddresses {
		path := fmt.Sprintf("status.advertisedAddresses[%d].url", i)
		if a.Name == "service-account-issuer" {
			continue // where tokens are verified, which often is a server of the garden
		}
		host, err := hostOf(a.URL)
		switch {
		case err == nil && host == "":
			ps.warn(path, Invalid, "%.100q has an address: no server name leads there", a.URL)
		case err != nil:
			ps.refuse(path, Invalid, "", "%s", err)
		case a.Application != "" || strings.HasPrefix(a.Name, "ingress/"):
			out.Ingress = append(out.Ingress, host)
		default:
			out.API = append(out.API, host)
		}
	}
	if len(out.API) == 0 && Usable(ps.list) {
		ps.add(Problem{Path: "status.advertisedAddresses", Cause: Required, Code: fault.CodeNotFound,
			What: "the API server has no name yet", Next: "it is looked at again when the shoot's status changes"})
	}
	if ingress := f.Cluster.Spec.Seed.Spec.Ingress; ingress != nil && ingress.Domain != "" {
		domain, err := hostname.Parse(ingress.Domain)
		if err != nil {
			ps.add(Problem{Object: "Seed " + f.Cluster.Spec.Seed.Metadata.Name, Path: "spec.ingress.domain", Cause: Invalid,
				What: err.Error()})
		} else {
			out.Ingress = append(out.Ingress, "*-"+out.ShortID+"."+domain)
			if !strings.HasPrefix(out.ShortID, "-") { // of the seed's own certificate
				out.API = append(out.API, "api-"+out.ShortID+"."+domain)
			}
		}
	}
	for n := int8(-1); n <= 4; n++ {
		out.VPN = append(out.VPN, destination(connecthead.VPN, id, n))
	}
	out.Proxy = []string{destination(connecthead.API, id, -1), destination(connecthead.Socket, id, -1)}
	for _, list := range []*[]string{&out.API, &out.Ingress, &out.VPN, &out.Proxy} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if !Usable(ps.list) {
		return Names{}, ps.all()
	}
	return out, ps.all()
}

func destination(kind connecthead.Kind, namespace string, replica int8) string {
	return connecthead.Destination{Kind: kind, Namespace: namespace, Replica: replica}.String()
}

// hostOf is the server name in an advertised URL; empty if an address stands there.
func hostOf(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("it is empty")
	}
	whole := text
	if !strings.Contains(text, "://") {
		whole = "https://" + text
	}
	u, err := url.Parse(whole)
	if err != nil || u.User != nil || u.Hostname() == "" {
		return "", fmt.Errorf("%.100q is no URL with a host", text)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return "", nil
	}
	return hostname.Parse(u.Hostname())
}
