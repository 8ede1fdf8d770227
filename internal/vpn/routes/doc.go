// SPDX-License-Identifier: Apache-2.0

// Package routes runs on machines of a seed that are no endpoint: it keeps a route of the range of clusters in a mesh
// to the endpoint machine that answers, in a table of its own. Without one the range is unreachable: nothing for a
// cluster leaves by another way. It makes no link, and decides nothing about the mesh.
package routes
