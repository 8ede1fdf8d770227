// SPDX-License-Identifier: Apache-2.0

// Package discovery holds the messages between our nodes and our discovery
// services, generated from discovery.proto (make generate). It neither seals
// nor judges them: package seal does.
package discovery
