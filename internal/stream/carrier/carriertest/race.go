// SPDX-License-Identifier: Apache-2.0

//go:build race

package carriertest

// The race detector makes everything five to fifteen times as slow. The cases that
// go by numbers then go less far: 2,400 opens instead of 100,000, 60 stalled
// streams instead of 1,000, 300 idle ones instead of 1,000.
const raceEnabled = true
