// SPDX-License-Identifier: Apache-2.0

package route

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// around finds what this machine needs outside of clusters: its hubs, its resolvers and its own addresses. What cannot
// be found now is not in the list: a hub is looked at again whenever it is dialled.
func around(ctx context.Context, cfg Config) (out []place) {
	out = append(out, resolvers("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")...)
	links, err := net.Interfaces()
	if err != nil {
		links = nil
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil || l.Name == cfg.Link {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out = append(out, own(l.Name, p.Addr()))
			}
		}
	}
	return append(out, hubs(ctx, cfg.Clusters)...)
}

// hubs resolves the hubs of clusters, all at once.
func hubs(ctx context.Context, clusters []Cluster) (out []place) {
	ctx, cancel := context.WithTimeout(ctx, nameWait)
	defer cancel()
	g := run.NewGroup(ctx)
	var mu sync.Mutex
	for _, c := range clusters {
		for _, hub := range c.Hubs {
			host, _, err := net.SplitHostPort(hub)
			if err != nil {
				continue
			}
			g.Do(func(ctx context.Context) {
				addrs, err := (&net.Resolver{}).LookupNetIP(ctx, "ip", host)
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, a := range addrs {
					out = append(out, place{"the hub " + hub, a})
				}
			})
		}
	}
	g.Wait()
	return out
}

// resolvers reads resolv.conf(5).
func resolvers(paths ...string) (out []place) {
	for _, path := range paths {
		text, err := private.ReadPublic(path, limit.KeyFile)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(text) {
			words := strings.Fields(string(line))
			if len(words) < 2 || words[0] != "nameserver" {
				continue
			}
			if a, err := netip.ParseAddr(words[1]); err == nil {
				out = append(out, place{"a resolver of this machine", a})
			}
		}
	}
	return out
}
