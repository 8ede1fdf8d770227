// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/secret"
)

// Mode is what a cluster says itself.
type Mode string

// The modes.
const (
	Inherit Mode = "inherit" // as the seed says
	On      Mode = "on"
	Off     Mode = "off"
)

// ParseMode reads a mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Inherit, On, Off:
		return m, nil
	}
	return "", fmt.Errorf("%.32q is none of %s, %s, %s", s, Inherit, On, Off)
}

// Secret is a private key, or the secret of a cluster: 32 bytes in base64. It prints as nothing.
type Secret struct{ secret.Value[[32]byte] }

// ParseSecret reads a secret. Its error shows nothing of the text.
func ParseSecret(text string) (Secret, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 32 || len(text) != base64.StdEncoding.EncodedLen(32) {
		return Secret{}, fmt.Errorf("it is not base64 of 32 bytes")
	}
	return Secret{secret.Hide((*[32]byte)(raw))}, nil
}

// Encode is the text that ParseSecret reads, "" for none.
func (s Secret) Encode() string {
	if s.IsZero() {
		return ""
	}
	return base64.StdEncoding.EncodeToString(s.Get()[:])
}

func (s Secret) equal(other Secret) bool {
	if s.IsZero() || other.IsZero() {
		return s.IsZero() && other.IsZero()
	}
	return subtle.ConstantTimeCompare(s.Get()[:], other.Get()[:]) == 1
}

// Cluster is what a hub keeps of a cluster.
type Cluster struct {
	Name       string
	Mode       Mode
	Address    netip.Addr // zero until it is first on; kept while it is off
	PublicKey  member.Key
	PrivateKey Secret // none if the cluster made its key itself
	Secret     Secret // of the cluster's members: the cluster and the endpoints
}

// Same says whether nothing differs.
func (k Cluster) Same(other Cluster) bool { return len(k.differs(other)) == 0 }

// differs names what is different, and shows no value.
func (k Cluster) differs(other Cluster) (out []string) {
	for _, one := range []struct {
		what string
		same bool
	}{
		{"name", k.Name == other.Name}, {"mode", k.Mode == other.Mode}, {"address", k.Address == other.Address},
		{"publicKey", k.PublicKey == other.PublicKey}, {"privateKey", k.PrivateKey.equal(other.PrivateKey)},
		{"secret", k.Secret.equal(other.Secret)},
	} {
		if !one.same {
			out = append(out, one.what)
		}
	}
	return out
}

// Effective says whether a mode means on.
func (c Config) Effective(m Mode) bool { return c.Configured() && (m == On || m != Off && c.Enabled) }

// Serves says whether a cluster is on, with all that it needs for it.
func (c Config) Serves(k Cluster) bool {
	return c.Effective(k.Mode) && k.Address.IsValid() && !k.PublicKey.IsZero() && !k.Secret.IsZero()
}

// Free is how many addresses are left for clusters.
func (c Config) Free(all []Cluster) int {
	free := int(capacity(c.Range))
	for _, k := range all {
		if k.Address.IsValid() && usable(c.Range, k.Address) {
			free--
		}
	}
	return free
}

// Served is how many clusters are on.
func (c Config) Served(all []Cluster) (n int) {
	for _, k := range all {
		if c.Serves(k) {
			n++
		}
	}
	return n
}

// Entry is what is kept of a cluster, false if it is nothing yet.
func Entry(all []Cluster, name string) (Cluster, bool) {
	if i := slices.IndexFunc(all, func(k Cluster) bool { return k.Name == name }); i >= 0 {
		return all[i], true
	}
	return Cluster{Name: name, Mode: Inherit}, false
}

// Change is what an operator wants of a cluster; what is empty stays.
type Change struct {
	Mode      Mode
	PublicKey member.Key // the cluster has made its key itself
}

// Keys are new ones, for a cluster that has none yet.
type Keys struct {
	Public          member.Key
	Private, Secret Secret
}

// Settle gives what is kept of a cluster from now on. A cluster that is on gets an address, a key and a secret, unless
// it has them.
func (c Config) Settle(all []Cluster, name string, change Change, drawn Keys) (Cluster, error) {
	k, _ := Entry(all, name)
	before := c.Serves(k)
	if change.Mode != "" {
		k.Mode = change.Mode
	}
	if k.Mode == On && !c.Configured() {
		return Cluster{}, fault.Newf(fault.CodeWireGuardOff, "cluster %s cannot be on", name).
			Whyf("the hub's configuration has no range for WireGuard").Hint("set wireguard in the configuration of the hub")
	}
	if !change.PublicKey.IsZero() && change.PublicKey != k.PublicKey {
		if err := c.keyTaken(all, name, change.PublicKey); err != nil {
			return Cluster{}, err
		}
		k.PublicKey, k.PrivateKey = change.PublicKey, Secret{}
	}
	if !c.Effective(k.Mode) {
		return k, nil
	}
	if !before {
		if err := c.roomFor(all, name); err != nil {
			return Cluster{}, err
		}
	}
	if !k.Address.IsValid() {
		a, err := c.allocate(all, name)
		if err != nil {
			return Cluster{}, err
		}
		k.Address = a
	}
	if k.PublicKey.IsZero() {
		k.PublicKey, k.PrivateKey = drawn.Public, drawn.Private
	}
	if k.Secret.IsZero() {
		k.Secret = drawn.Secret
	}
	return k, nil
}

// roomFor refuses one more cluster beyond what the engine of the endpoints is for.
func (c Config) roomFor(all []Cluster, name string) error {
	if n := c.Served(all); c.Most > 0 && n >= c.Most {
		return fault.Newf(fault.CodeLimit, "cluster %s cannot be on", name).
			Whyf("wireguard.maxClusters is %d, and %d clusters are on", c.Most, n).
			Hint("switch another one off (tombolo cluster wireguard NAME --off), or raise wireguard.maxClusters")
	}
	return nil
}

func (c Config) allocate(all []Cluster, name string) (netip.Addr, error) {
	taken := map[netip.Addr]bool{}
	for _, k := range all {
		taken[k.Address] = true
	}
	a, ok := FirstFree(c.Range, taken)
	if !ok {
		return a, fault.Newf(fault.CodeLimit, "there is no address for cluster %s", name).
			Whyf("all %d of %s are taken, also by clusters that are off", capacity(c.Range), c.Range).
			Hint("remove clusters that are no longer used (tombolo cluster remove NAME), or configure a larger range around it")
	}
	return a, nil
}

// keyTaken refuses a key that somebody else has: WireGuard would take both for one.
func (c Config) keyTaken(all []Cluster, name string, key member.Key) error {
	holder := ""
	for _, k := range all {
		if k.Name != name && k.PublicKey == key {
			holder = "cluster " + k.Name
		}
	}
	for _, e := range c.Endpoints {
		if e.PublicKey == key {
			holder = "endpoint " + e.Name
		}
	}
	if holder == "" {
		return nil
	}
	return fault.Newf(fault.CodeWireGuardTaken, "cluster %s cannot have this key", name).
		Whyf("%s has the public key %s", holder, key.Short()).Hint("make a key for each cluster: wg genkey")
}

// Replaces refuses a configuration that does not fit the clusters there are, or switches on more of them than it
// allows. None that is on is switched off.
func (c Config) Replaces(before Config, all []Cluster) error {
	if n := c.Served(all); c.Most > 0 && n > c.Most && n > before.Served(all) {
		return fault.Newf(fault.CodeLimit, "wireguard.maxClusters cannot be %d", c.Most).
			Whyf("%d clusters would be on", n).
			Hint("raise it, or switch clusters off first: tombolo cluster wireguard NAME --off")
	}
	return c.Fits(all)
}

// Fits refuses a configuration that leaves out addresses which clusters have.
func (c Config) Fits(all []Cluster) error {
	if !c.Configured() {
		return nil // all are off, and keep their addresses
	}
	var outside []string
	for _, k := range all {
		if k.Address.IsValid() && !usable(c.Range, k.Address) {
			outside = append(outside, fmt.Sprintf("%s (%s)", k.Name, k.Address))
		}
	}
	if len(outside) == 0 {
		return nil
	}
	const most = 8
	more := ""
	if n := len(outside) - most; n > 0 {
		outside, more = outside[:most], fmt.Sprintf(" and %d more", n)
	}
	return fault.Newf(fault.CodeWireGuardTaken, "wireguard.range cannot be %s", c.Range).
		Whyf("clusters have addresses outside of it: %s%s", strings.Join(outside, ", "), more).
		Hint("choose a range around these addresses, or remove these clusters first")
}
