// SPDX-License-Identifier: Apache-2.0

// Package meshconf reads what a node's configuration says for the mesh: the section mesh
// of a MeshConfig. Of the rest of the file it looks only at what cannot stand beside a
// running mesh. It opens no socket, and reads no file but that of a proxy's URL.
package meshconf
