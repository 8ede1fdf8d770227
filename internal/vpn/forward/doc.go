// SPDX-License-Identifier: Apache-2.0

// Package forward carries what clusters send through a mesh to their OpenVPN servers. A cluster is known by its address
// in the mesh, which WireGuard proves: it drops packets from addresses that are not those of the key's owner, and the
// mesh drops what says to be from there and has come by another way. It keeps no state but open connections, changes
// nothing in the kernel, and reads nothing of what it carries.
package forward
