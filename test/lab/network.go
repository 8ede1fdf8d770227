// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"

	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// The parts of a lab: those that the demo has, too.
type (
	Lab         = network.Network
	Host        = network.Host
	End         = network.End
	Process     = network.Process
	Filter      = network.Filter
	World       = network.World
	Site        = network.Site
	Capture     = network.Capture
	Flood       = network.Flood
	Translation = network.Translation
	Behaviour   = network.Behaviour
)

// Behaviours of NATs and firewalls.
const (
	Blocked              = network.Blocked
	Independent          = network.Independent
	AddressDependent     = network.AddressDependent
	AddressPortDependent = network.AddressPortDependent
)

// Addresses of a World.
const (
	ControlAddr = network.ControlAddr
	SiteRange   = network.SiteRange
	BackendAddr = network.BackendAddr
)

// New returns an empty lab. The word is part of the names of what it makes.
func New(word string) (*Lab, error) { return network.New(context.Background(), word) }

// Check reports why a lab cannot be built here, or nil.
func Check() error { return network.Check(context.Background()) }

// Sweep is that of the demo's networks.
func Sweep() ([]string, error) { return network.Sweep() }

// SweepOwn is that of the demo's networks.
func SweepOwn() ([]string, error) { return network.SweepOwn() }

// Leftovers are those of the demo's networks.
func Leftovers() ([]string, error) { return network.Leftovers() }

// OwnerDead reports whether a name begins with that of a lab whose process is gone.
func OwnerDead(name string) bool { return network.OwnerDead(name) }
