// SPDX-License-Identifier: Apache-2.0

package telemetry

// Bounds for the tests of the package.
const (
	LogGroup = logGroup
	LogAll   = logAll
	LogShare = logShare
	LogKinds = logKinds
)
