// SPDX-License-Identifier: Apache-2.0

package main

import "math"

// trend is a straight line through samples.
type trend struct {
	slope  float64
	within float64 // the true slope is within so much of it, with 95 %
	level  float64 // the mean
}

// blocks is into how many parts samples are put together before they are looked
// at: neighbours in time resemble each other, and a regression that takes them
// for independent is far too sure of itself.
const blocks = 10

// student is the 97.5 % quantile of Student's t with blocks-2 degrees of freedom.
const student = 2.306

// regress fits a line by least squares through the means of blocks.
func regress(x, y []float64) trend {
	if len(x) < blocks {
		return trend{slope: math.NaN(), within: math.NaN(), level: math.NaN()}
	}
	var bx, by [blocks]float64
	for i := range blocks {
		from, to := len(x)*i/blocks, len(x)*(i+1)/blocks
		bx[i], by[i] = mean(x[from:to]), mean(y[from:to])
	}
	mx, my := mean(bx[:]), mean(by[:])
	var xx, xy float64
	for i := range blocks {
		xx += (bx[i] - mx) * (bx[i] - mx)
		xy += (bx[i] - mx) * (by[i] - my)
	}
	out := trend{slope: xy / xx, level: my}
	var left float64
	for i := range blocks {
		d := by[i] - my - out.slope*(bx[i]-mx)
		left += d * d
	}
	out.within = student * math.Sqrt(left/(blocks-2)/xx)
	return out
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
