// SPDX-License-Identifier: Apache-2.0

//go:build race

package carriertest

// The race detector makes everything five to fifteen times as slow; the cases
// that count by the ten thousand then count less far. Without it they run in full.
const raceEnabled = true
