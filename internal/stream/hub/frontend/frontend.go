// SPDX-License-Identifier: Apache-2.0

package frontend

import (
	"context"
	"io/fs"
	"net"
	"path/filepath"

	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// DialFunc opens a stream to d.Address in one cluster; its errors are faults.
type DialFunc = func(ctx context.Context, d wire.Dial) (carrier.Stream, error)

// Frontend serves the callers of one cluster on a listener until ctx ends.
type Frontend interface {
	// Serve owns ln and closes it. When ctx ends it stops accepting and ends
	// what still runs.
	Serve(ctx context.Context, ln net.Listener, dial DialFunc) error
}

// Protocols of a cluster's unix sockets.
const (
	ProtocolKonnectivity = "konnectivity"
	ProtocolConnect      = "connect"
)

// Config are the sockets that the configuration asks for.
type Config struct {
	Defaults Defaults
	Clusters []Cluster
}

// Defaults are owner and mode of sockets of which nothing else is said; -1 leaves them.
type Defaults struct {
	UID, GID int
	Mode     fs.FileMode
}

// Cluster is a cluster with the sockets that it shall have.
type Cluster struct {
	Name    id.Cluster
	Sockets []Socket
}

// Socket is one of them.
type Socket struct {
	Protocol string
	Spec     SocketSpec
}

// DefaultEgress is the egress selection that reaches nodes, pods and services.
const DefaultEgress = "cluster"

// SocketPath is where a cluster's socket stands unless a path is given.
func SocketPath(runDir string, c id.Cluster, protocol, egress string) string {
	if egress != DefaultEgress {
		protocol += "-" + egress
	}
	return filepath.Join(runDir, "clusters", c.String(), protocol+".sock")
}
