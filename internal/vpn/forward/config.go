// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// DefaultHealth is where probes are answered.
const DefaultHealth = "127.0.0.1:8451"

// The protocols.
const (
	tcp = "tcp"
	udp = "udp"
)

// Config is a valid configuration.
type Config struct {
	Listen       netip.AddrPort
	Protocol     string
	Clusters     map[netip.Addr]Cluster // by their addresses in the mesh; may be reloaded
	HealthListen string
	Log          v1alpha1.LogConfig
}

// Cluster is one that is served.
type Cluster struct{ Name, Target string }

// ParseConfig decodes and validates a file. It returns every problem at once.
func ParseConfig(file string, data []byte) (Config, error) {
	var raw v1alpha1.VPNForwardConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindVPNForwardConfig, raw.Kind)
	c := configure(raw, d.Add)
	return c, d.Err()
}

func configure(raw v1alpha1.VPNForwardConfig, add conf.Report) Config {
	c := Config{Protocol: cmp.Or(raw.Protocol, tcp), HealthListen: cmp.Or(raw.HealthListen, DefaultHealth), Log: raw.Log,
		Clusters: make(map[netip.Addr]Cluster, len(raw.Clusters))}
	var err error
	c.Listen, err = netip.ParseAddrPort(raw.Listen)
	if at := c.Listen.Addr(); err != nil || c.Listen.Port() == 0 || at.Zone() != "" || at.IsUnspecified() {
		add("listen", "%q is not this machine's address in the mesh and a port", raw.Listen)
	}
	if c.Protocol != tcp && c.Protocol != udp {
		add("protocol", "%q is neither tcp nor udp", c.Protocol)
	}
	add.Listener("healthListen", c.HealthListen)
	add.Log(raw.Log.Format, raw.Log.Level)
	if n := len(raw.Clusters); n > clusters {
		add("clusters", "there are %d, at most %d are allowed", n, clusters)
		return c
	}
	names := map[string]int{}
	for i, one := range raw.Clusters {
		path := fmt.Sprintf("clusters[%d]", i)
		if _, err := id.ParseCluster(one.Name); err != nil {
			add(path+".name", "%v", err)
		} else if first, taken := names[one.Name]; taken {
			add(path+".name", "%s is that of clusters[%d] too", one.Name, first)
		} else {
			names[one.Name] = i
		}
		if _, err := policy.ParseTarget(one.Target); err != nil {
			add(path+".target", "%v", err)
		}
		a, err := netip.ParseAddr(one.Address)
		a = a.Unmap()
		switch other, taken := c.Clusters[a]; {
		case err != nil || a.Zone() != "" || !a.IsGlobalUnicast():
			add(path+".address", "%q is no address of a cluster", one.Address)
		case taken:
			add(path+".address", "%s is that of %s too", a, other.Name)
		case a == c.Listen.Addr():
			add(path+".address", "%s is this machine's own", a)
		case a.Is4() != c.Listen.Addr().Is4() && c.Listen.IsValid():
			add(path+".address", "%s is of the other family than listen", a)
		default:
			c.Clusters[a] = Cluster{one.Name, one.Target}
		}
	}
	return c
}
