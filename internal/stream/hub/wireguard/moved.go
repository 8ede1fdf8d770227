// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"crypto/ecdh"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// StateOf is a cluster as it is kept and exported.
func StateOf(k Cluster) v1alpha1.ClusterState {
	out := v1alpha1.ClusterState{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.Version, Kind: v1alpha1.KindClusterState}, Cluster: k.Name,
		WireGuard: v1alpha1.ClusterWireGuard{
			Mode: string(k.Mode), PublicKey: k.PublicKey.String(), PrivateKey: k.PrivateKey.Encode(), Secret: k.Secret.Encode(),
		},
	}
	if k.Address.IsValid() {
		out.WireGuard.Address = k.Address.String()
	}
	return out
}

// ReadState reads a file of kind ClusterState, as another hub exported it.
func ReadState(file string, data []byte) (v1alpha1.ClusterState, error) {
	var raw v1alpha1.ClusterState
	d := conf.Decode(file, data, &raw)
	if d.Unread() {
		return raw, d.Err()
	}
	d.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	d.Want("kind", v1alpha1.KindClusterState, raw.Kind)
	checkPair(ParseState(raw, d.Add), d.Add)
	return raw, d.Err()
}

// CheckState validates what came in another way than as a file.
func CheckState(raw v1alpha1.ClusterState) (Cluster, error) {
	var problems []string
	add := func(path, format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}
	k := ParseState(raw, add)
	checkPair(k, add)
	if len(problems) > 0 {
		return Cluster{}, fault.New(fault.CodeRequest, "the state of the cluster cannot be read").
			Whyf("%s", strings.Join(problems, "; "))
	}
	return k, nil
}

// ParseState validates the form of what is kept of a cluster.
func ParseState(raw v1alpha1.ClusterState, add conf.Report) Cluster {
	out := Cluster{Name: raw.Cluster}
	if _, err := id.ParseCluster(raw.Cluster); err != nil {
		add("cluster", "%v", err)
	}
	add = under(add, "wireguard.")
	in, err := raw.WireGuard, error(nil)
	if out.Mode, err = ParseMode(in.Mode); err != nil {
		add("mode", "%v", err)
	}
	if in.Address != "" {
		if out.Address, err = netip.ParseAddr(in.Address); err != nil || !out.Address.Is4() {
			add("address", "%.64q is no IPv4 address", in.Address)
		}
	}
	if in.PublicKey != "" {
		if out.PublicKey, err = member.ParseKey(in.PublicKey); err != nil {
			add("publicKey", "%v", err)
		}
	}
	if in.PrivateKey != "" {
		if out.PrivateKey, err = ParseSecret(in.PrivateKey); err != nil {
			add("privateKey", "%v", err)
		}
	}
	if in.Secret != "" {
		if out.Secret, err = ParseSecret(in.Secret); err != nil {
			add("secret", "%v", err)
		}
	}
	if in.Address != "" && (in.PublicKey == "" || in.Secret == "") {
		add("address", "a cluster with an address has publicKey and secret too")
	}
	return out
}

// checkPair reports a private key that is not that of the public one.
func checkPair(k Cluster, add conf.Report) {
	if k.PrivateKey.IsZero() {
		return
	}
	p, err := ecdh.X25519().NewPrivateKey(k.PrivateKey.Get()[:])
	if err != nil || member.Key(p.PublicKey().Bytes()) != k.PublicKey {
		add("wireguard.privateKey", "it is not that of publicKey")
	}
}

// Import gives what is kept of a cluster that another hub exported. With fresh it gets an address of this hub's range,
// in place of the one that it has.
func (c Config) Import(all []Cluster, in Cluster, fresh bool) (Cluster, error) {
	if has, ok := Entry(all, in.Name); ok {
		if fresh && has.Address.IsValid() && in.Address.IsValid() {
			in.Address = has.Address // it may have got it by an earlier import
		}
		if what := has.differs(in); len(what) > 0 {
			return Cluster{}, fault.Newf(fault.CodeWireGuardTaken, "cluster %s is here already", in.Name).
				Whyf("what is kept of it differs in: %s", strings.Join(what, ", ")).
				Hint("if the imported one shall count, remove it first: tombolo cluster remove %s", in.Name)
		}
		return has, nil
	}
	if !in.PublicKey.IsZero() {
		if err := c.keyTaken(all, in.Name, in.PublicKey); err != nil {
			return Cluster{}, err
		}
	}
	if in.Address.IsValid() {
		if err := c.place(all, &in, fresh); err != nil {
			return Cluster{}, err
		}
	}
	if c.Serves(in) {
		if err := c.roomFor(all, in.Name); err != nil {
			return Cluster{}, err
		}
	}
	return in, nil
}

// place keeps the address of an imported cluster, or chooses another.
func (c Config) place(all []Cluster, in *Cluster, fresh bool) (err error) {
	const another = "take another address with --new-address"
	if !c.Configured() {
		return fault.Newf(fault.CodeWireGuardOff, "cluster %s cannot be imported", in.Name).
			Whyf("it has the address %s, and the hub's configuration has no range for WireGuard", in.Address).
			Hint("set wireguard in the configuration of the hub")
	}
	if fresh {
		in.Address, err = c.allocate(all, in.Name)
		return err
	}
	if !usable(c.Range, in.Address) {
		why := "it is outside of the range " + c.Range.String()
		if c.Range.Contains(in.Address) {
			why = "in the range " + c.Range.String() + " it is not for clusters"
		}
		return fault.Newf(fault.CodeWireGuardTaken, "cluster %s cannot have the address %s here", in.Name, in.Address).
			Whyf("%s", why).Hint(another)
	}
	i := slices.IndexFunc(all, func(k Cluster) bool { return k.Address == in.Address })
	if i >= 0 {
		return fault.Newf(fault.CodeWireGuardTaken, "cluster %s cannot have the address %s here", in.Name, in.Address).
			Whyf("cluster %s has it", all[i].Name).Hint(another)
	}
	return nil
}
