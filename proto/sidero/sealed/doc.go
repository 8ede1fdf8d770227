// SPDX-License-Identifier: Apache-2.0

// Package sealed holds what the sealed bytes of the discovery protocol of Talos
// nodes contain, generated from sealed.proto (make generate). It opens nothing:
// package seal does.
package sealed
