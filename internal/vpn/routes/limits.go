// SPDX-License-Identifier: Apache-2.0

package routes

import "time"

// Bounds and timings of this package.
const (
	// endpoints bounds those of a file.
	endpoints = 8
	// probeEvery is how often an endpoint is asked, probeWait how long its answer may take.
	probeEvery, probeWait = time.Second, time.Second
	// silentFor is how long an endpoint may be silent until the route goes to the next one.
	silentFor = 3 * time.Second
	// steadyFor is how long an endpoint that is preferred must have answered until the route goes back to it.
	steadyFor = 10 * time.Second
	// resolveEvery is how long after an answer names are resolved again, resolveWait how long one may take.
	resolveEvery, resolveWait = 5 * time.Second, 2 * time.Second
	// lookEvery is how often the kernel is looked at.
	lookEvery = 5 * time.Second
)
