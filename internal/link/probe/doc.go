// SPDX-License-Identifier: Apache-2.0

// Package probe measures from a node of linked clusters: echoes through tunnels, of several sizes and from its pod
// ranges, questions to DNS Services, and what the kernel is set to. It does not judge, and changes nothing.
package probe
