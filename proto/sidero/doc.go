// SPDX-License-Identifier: Apache-2.0

// Package sidero holds the messages of the discovery protocol that Talos nodes
// speak, generated from server.proto (make generate). It
// neither seals nor judges them: package seal does.
package sidero
