// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// place is an address of a server and the name that its certificate has.
type place struct{ address, name string }

// resolver is what is asked of DNS.
type resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// directory hands out the addresses of all servers in turn: behind one name there may be several.
type directory struct {
	dns  resolver
	turn int
}

// next gives the next of the addresses of all hosts, and of those of a Service.
func (d *directory) next(ctx context.Context, hosts []string, port int, of []place) (place, error) {
	all := slices.Clone(of)
	var failed error
	for _, host := range hosts {
		found, err := d.find(ctx, host, port)
		failed = cmp.Or(failed, err)
		all = append(all, found...)
	}
	if len(all) == 0 {
		return place{}, fault.New(fault.CodeHubAway, "no konnectivity server has an address").Because(failed).
			Hint("correct --proxy-server-host or --proxy-server-service")
	}
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.address, b.address) }) // DNS shuffles its answers
	all = slices.Compact(all)
	d.turn++
	return all[d.turn%len(all)], nil
}

// find gives the places of one host: an address, a name, or a name of SRV records.
func (d *directory) find(ctx context.Context, host string, port int) ([]place, error) {
	domain, ok := srvDomain(host)
	if !ok {
		return d.addresses(ctx, host, port, host)
	}
	_, records, err := d.dns.LookupSRV(ctx, "", "", host)
	if err != nil {
		return nil, err
	}
	var all []place
	var failed error
	for _, r := range records {
		if r.Target == "." { // RFC 2782: the service is decidedly not there
			continue
		}
		found, err := d.addresses(ctx, strings.TrimSuffix(r.Target, "."), int(r.Port), domain)
		failed = cmp.Or(failed, err)
		all = append(all, found...)
	}
	return all, failed
}

func (d *directory) addresses(ctx context.Context, host string, port int, name string) ([]place, error) {
	found := []string{host}
	if net.ParseIP(host) == nil {
		var err error
		if found, err = d.dns.LookupHost(ctx, host); err != nil {
			return nil, err
		}
	}
	var all []place
	for _, addr := range found {
		all = append(all, place{net.JoinHostPort(addr, strconv.Itoa(port)), name})
	}
	return all, nil
}

// srvDomain is what comes after _service._proto. in a name of SRV records. Certificates have it: the hosts are only
// what DNS says, which nobody vouches for.
func srvDomain(host string) (domain string, ok bool) {
	labels := strings.SplitN(strings.TrimSuffix(host, "."), ".", 3)
	if len(labels) < 3 || len(labels[0]) < 2 || labels[0][0] != '_' || len(labels[1]) < 2 || labels[1][0] != '_' {
		return "", false
	}
	return labels[2], labels[2] != ""
}

// service is a Service whose EndpointSlices have the addresses of servers.
type service struct{ namespace, name, port string }

// parseService reads namespace/name, or namespace/name:port with the name of a port.
func parseService(text string) (s service, err error) {
	at, port, _ := strings.Cut(text, ":")
	namespace, name, ok := strings.Cut(at, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") || strings.HasSuffix(text, ":") {
		return s, fault.Newf(fault.CodeUsage, "--proxy-server-service %q is no Service", text).
			Hint("write NAMESPACE/NAME, or NAMESPACE/NAME:PORT with the name of one of its ports")
	}
	return service{namespace, name, port}, nil
}

// places are those of its endpoints: with the port that it names, or with this one.
func (s service) places(all []kube.Endpoint, port int) (out []place) {
	for _, e := range all {
		n := port
		if s.port != "" {
			n = e.Ports[s.port]
		}
		p := place{net.JoinHostPort(e.Address, strconv.Itoa(n)), s.name + "." + s.namespace + ".svc"}
		if n != 0 && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// lookup asks for the places of a Service.
type lookup struct {
	service
	list func(context.Context) ([]kube.Endpoint, error)
	port int
}

// newLookup makes one; nil without --proxy-server-service.
func (a *Agent) newLookup() (*lookup, error) {
	if a.Service == "" {
		return nil, nil
	}
	s, err := parseService(a.Service)
	if err != nil {
		return nil, err
	}
	load := func() (kube.Access, error) { return kube.Load(a.Kubeconfig, a.Getenv) }
	if _, err := load(); err != nil {
		return nil, err
	}
	client := kube.NewClientOf(load, nil)
	return &lookup{service: s, port: a.Port, list: func(ctx context.Context) ([]kube.Endpoint, error) {
		return client.Endpoints(ctx, s.namespace, s.name)
	}}, nil
}

// lookAtService keeps the endpoints of the Service, each of which is a server. What is known stays if there is no
// answer.
func (a *Agent) lookAtService(ctx context.Context) {
	if a.service == nil {
		return
	}
	all, err := a.service.list(ctx)
	if err != nil {
		a.Log.Warn("the endpoints of servers cannot be read", telemetry.AttrReason, err)
		return
	}
	found := a.service.places(all, a.service.port)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found, a.listed = found, servers(found)
}

// servers counts the servers of places: one with addresses of both families is one.
func servers(all []place) int {
	n := map[bool]int{}
	for _, p := range all {
		n[strings.HasPrefix(p.address, "[")]++
	}
	return max(n[false], n[true])
}

// places are those of the Service, if there is one.
func (a *Agent) places() []place {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.found)
}
