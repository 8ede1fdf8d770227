// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what runs Tombolo somewhere: the builder of the image,
// systemd units, and the page that explains them. It has no code of its own;
// its tests hold units and manifests against the program that they start.
package deploy
