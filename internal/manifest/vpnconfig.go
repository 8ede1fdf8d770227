// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// vpnCommonConfig has the fields of v1alpha1.VPNCommon that this package sets.
type vpnCommonConfig struct {
	APIVersion string      `yaml:"apiVersion"`
	Kind       string      `yaml:"kind"`
	Cluster    string      `yaml:"cluster"`
	Protocol   string      `yaml:"protocol"`
	Identity   vpnIdentity `yaml:"identity"`
	TLSAuth    string      `yaml:"tlsAuth,omitempty"`
	TLSCrypt   string      `yaml:"tlsCrypt,omitempty"`
	MTU        int         `yaml:"mtu,omitempty"`
	Health     string      `yaml:"healthListen"`
	RunDir     string      `yaml:"runDir"`
	Log        configLog   `yaml:"log"`
}

type vpnIdentity struct {
	Bundle      string `yaml:"bundle,omitempty"`
	Certificate string `yaml:"certificate,omitempty"`
	Key         string `yaml:"key,omitempty"`
	CA          string `yaml:"ca,omitempty"`
}

// vpnServerConfig has the fields of v1alpha1.VPNServerConfig that this package sets; Check gives it to the program.
type vpnServerConfig struct {
	vpnCommonConfig `yaml:",inline"`
	Listen          string       `yaml:"listen"`
	Clients         []string     `yaml:"clients,omitempty"`
	Transfer        []string     `yaml:"transfer"`
	Ranges          []routeRange `yaml:"ranges"`
	LocalRanges     []string     `yaml:"localRanges,omitempty"`
	Connect         *vpnConnect  `yaml:"connect,omitempty"`
}

type vpnConnect struct {
	Listen   string `yaml:"listen"`
	ClientCA string `yaml:"clientCA,omitempty"`
}

// vpnClientConfig has the fields of v1alpha1.VPNClientConfig that this package sets; Check gives it to the program.
type vpnClientConfig struct {
	vpnCommonConfig `yaml:",inline"`
	Servers         []vpnRemote  `yaml:"servers"`
	ServerName      string       `yaml:"serverName,omitempty"`
	Ranges          []routeRange `yaml:"ranges"`
}

type vpnRemote struct {
	Address  string    `yaml:"address"`
	Proxy    *vpnProxy `yaml:"proxy,omitempty"`
	Transfer []string  `yaml:"transfer"`
}

type vpnProxy struct {
	Address     string `yaml:"address"`
	Header      string `yaml:"header,omitempty"`
	Destination string `yaml:"destination,omitempty"`
}

func vpnCommonConfigOf(o VPNOptions, kind string, health int, identity, of int) vpnCommonConfig {
	at := func(key string) string { return vpnIdentityDir + "/" + key }
	c := vpnCommonConfig{APIVersion: v1alpha1.Version, Kind: kind, Cluster: o.Cluster, Protocol: o.Protocol, MTU: o.MTU,
		Identity: vpnIdentity{Bundle: at(bundleKey(identity, of))}, Health: ":" + strconv.Itoa(health), RunDir: RunDir,
		Log: configLog{"json", o.LogLevel}}
	if o.ForeignCA {
		c.Identity = vpnIdentity{Certificate: at(numbered("tls", ".crt", identity, of)),
			Key: at(numbered("tls", ".key", identity, of)), CA: at("ca.crt")}
	}
	switch o.Handshake {
	case HandshakeAuth:
		c.TLSAuth = at(vpnStaticKey)
	case HandshakeCrypt:
		c.TLSCrypt = at(vpnStaticKey)
	}
	return c
}

// vpnRanges are those of --range and --map, which were read before.
func vpnRanges(o VPNOptions) (out []routeRange) {
	for _, r := range o.Ranges {
		out = append(out, routeRange{Range: r})
	}
	for _, m := range o.Maps {
		there, here, _ := strings.Cut(m, "=")
		out = append(out, routeRange{there, here})
	}
	return out
}

// transferOf are the transfer networks of one server.
func (o VPNOptions) transferOf(server int, f families) []string {
	if len(o.Transfer) == 0 {
		return vpnTransfer(server, f)
	}
	return strings.Split(o.Transfer[server], ",")
}

func vpnServerConfigOf(o VPNServerOptions, f families, server int) vpnServerConfig {
	c := vpnServerConfig{
		vpnCommonConfig: vpnCommonConfigOf(o.VPNOptions, v1alpha1.KindVPNServerConfig, vpnServerHealth, 0, 1),
		Listen:          ":" + strconv.Itoa(vpnPort), Clients: o.Clients, Transfer: o.transferOf(server, f),
		Ranges: vpnRanges(o.VPNOptions), LocalRanges: o.Locals}
	if o.Connect {
		c.Connect = &vpnConnect{Listen: ":" + strconv.Itoa(vpnConnectPort)}
		if o.ForeignCA {
			c.Connect.ClientCA = vpnIdentityDir + "/" + vpnConnectCA
		}
	}
	return c
}

func vpnClientConfigOf(o VPNClientOptions, f families, client int) vpnClientConfig {
	c := vpnClientConfig{ServerName: o.ServerName, Ranges: vpnRanges(o.VPNOptions),
		vpnCommonConfig: vpnCommonConfigOf(o.VPNOptions, v1alpha1.KindVPNClientConfig, vpnClientHealth, client, o.Pods)}
	for i, address := range o.Servers {
		r := vpnRemote{Address: address, Transfer: o.transferOf(i, f)}
		if o.Proxy != "" {
			r.Proxy = &vpnProxy{Address: o.Proxy}
			if len(o.Destinations) > 0 {
				r.Proxy.Header, r.Proxy.Destination = o.Header, o.Destinations[i]
			}
		}
		c.Servers = append(c.Servers, r)
	}
	return c
}

// vpnFile names the configuration of a pod.
func vpnFile(o VPNOptions, pod int) string {
	if o.Pods > 1 {
		return o.podName(pod) + ".yaml"
	}
	return "vpn.yaml"
}

// vpnFiles renders configurations. What the program would not take is a problem of the options.
func vpnFiles(o VPNOptions, command string, configs []any) (map[string]string, error) {
	out := map[string]string{}
	for i, c := range configs {
		text, err := asText(c)
		if err != nil {
			return nil, err
		}
		name := vpnFile(o, i)
		if o.Check != nil {
			if err := o.Check(name, []byte(text)); err != nil {
				return nil, fault.New(fault.CodeUsage, "the manifest cannot be made").Whyf("%s", fault.From(err).Why).
					Hint("see 'tombolo %s --help'", command)
			}
		}
		out[name] = text
	}
	return out, nil
}

// joined are all texts in one order.
func joined(files map[string]string) (out string) {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out += files[name]
	}
	return out
}

// vpnSecretComment says how to make a Secret that is not printed.
func vpnSecretComment(o VPNOptions, role string, identities int) []string {
	if o.Secret == "" {
		return []string{"It holds private keys: treat it as a secret."}
	}
	from := ""
	for i := range identities {
		if o.ForeignCA {
			from += " --from-file=" + numbered("tls", ".crt", i, identities) +
				" --from-file=" + numbered("tls", ".key", i, identities)
		} else {
			from += " --from-file=" + bundleKey(i, identities)
		}
	}
	if o.ForeignCA {
		from += " --from-file=ca.crt"
	}
	var out []string
	out = append(out, "The pods wait for who they are:")
	if !o.ForeignCA {
		for i := range identities {
			host := ""
			if role == vpnServerBox {
				host = " --host " + o.Name + "-connect"
			}
			out = append(out, "  tombolo certificate issue --role "+role+" --cluster "+o.Cluster+" --name "+
				numbered(o.Name, "", i, identities)+host+" --out "+bundleKey(i, identities))
		}
	}
	if o.Handshake != HandshakeNone {
		out = append(out, "  tombolo vpn key --out "+vpnStaticKey+"   # the same on both ends")
		from += " --from-file=" + vpnStaticKey
	}
	return append(out, "  kubectl -n "+o.Namespace+" create secret generic "+o.Secret+from)
}

func vpnServerComment(o VPNServerOptions) []string {
	out := append([]string{"Made by 'tombolo vpn manifest server'."}, vpnSecretComment(o.VPNOptions, vpnServerBox, 1)...)
	if o.Connect {
		if o.ForeignCA {
			out[len(out)-1] += " --from-file=" + vpnConnectCA
		}
		out = append(out, "kube-apiserver connects to https://"+o.Name+"-connect:"+
			strconv.Itoa(vpnConnectPort)+", when packets pass.")
	}
	return out
}

func vpnClientComment(o VPNClientOptions) []string {
	return append([]string{"Made by 'tombolo vpn manifest client'."},
		vpnSecretComment(o.VPNOptions, vpnClientBox, o.Pods)...)
}
