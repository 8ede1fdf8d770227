// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
)

// DefaultHealth is where probes are answered.
const DefaultHealth = "127.0.0.1:8452"

const defaultTable, defaultRule = 190, 32520

// Config is a valid configuration.
type Config struct {
	Range        netip.Prefix
	Endpoints    []Endpoint
	Table, Rule  int
	HealthListen string
	Log          v1alpha1.LogConfig
}

// Endpoint is an endpoint machine. Addr is valid where its address is no name.
type Endpoint struct {
	Name, Host string
	Addr       netip.Addr
	Probe      policy.Target // without a port: the machine is pinged
}

// ParseConfig decodes and validates a file. It returns every problem at once.
func ParseConfig(file string, data []byte) (Config, error) {
	var raw v1alpha1.VPNRoutesConfig
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return Config{}, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindVPNRoutesConfig, raw.Kind)
	c := configure(raw, d.Add)
	return c, d.Err()
}

func configure(raw v1alpha1.VPNRoutesConfig, add conf.Report) Config {
	c := Config{Table: cmp.Or(raw.Table, defaultTable), Rule: cmp.Or(raw.Rule, defaultRule),
		HealthListen: cmp.Or(raw.HealthListen, DefaultHealth), Log: raw.Log}
	p, err := netip.ParsePrefix(raw.Range)
	switch {
	case err != nil || p.Addr().Is4In6() || p != p.Masked():
		add("range", "%q is no range: a CIDR without host bits is expected", raw.Range)
	case p.Bits() < 8:
		add("range", "%s is too large for clusters in a mesh", p)
	default:
		c.Range = p
	}
	if c.Table < 1 || c.Table > 1<<31-1 || c.Table >= 253 && c.Table <= 255 {
		add("table", "%d is not the number of a table of its own: 1 to 252, or 256 and above", c.Table)
	}
	if c.Rule < 1 || c.Rule > 32765 {
		add("rule", "%d is not a priority before that of the table main: 1 to 32765", c.Rule)
	}
	add.Listener("healthListen", c.HealthListen)
	add.Log(raw.Log.Format, raw.Log.Level)
	if n := len(raw.Endpoints); n < 1 || n > endpoints {
		add("endpoints", "there are %d, 1 to %d are expected", n, endpoints)
		return c
	}
	seen := map[string]int{}
	for i, one := range raw.Endpoints {
		path := fmt.Sprintf("endpoints[%d]", i)
		e := Endpoint{Name: one.Name, Host: one.Address}
		if one.Name == "" {
			add(path+".name", "it is empty")
		} else if first, taken := seen[one.Name]; taken {
			add(path+".name", "%s is that of endpoints[%d] too", one.Name, first)
		} else {
			seen[one.Name] = i
		}
		a, err := netip.ParseAddr(one.Address)
		switch {
		case err == nil && (a.Zone() != "" || !a.Unmap().IsGlobalUnicast()):
			add(path+".address", "%s is no address of a machine", a)
		case err == nil && c.Range.IsValid() && a.Unmap().Is4() != c.Range.Addr().Is4():
			add(path+".address", "%s is of the other family than range", a)
		case err == nil && c.Range.Contains(a.Unmap()):
			add(path+".address", "%s is in the range itself: name the machine as its neighbours reach it", a)
		case err == nil:
			e.Addr = a.Unmap()
		default:
			if _, err := hostname.Parse(one.Address); err != nil {
				add(path+".address", "%v", err)
			}
		}
		if one.Probe != "" {
			if e.Probe, err = policy.ParseTarget(one.Probe); err != nil {
				add(path+".probe", "%v", err)
			}
		}
		c.Endpoints = append(c.Endpoints, e)
	}
	return c
}
