// SPDX-License-Identifier: Apache-2.0

package enrol

import "time"

// RenewAt is when a certificate shall be renewed: at two thirds of its life.
func RenewAt(notBefore, notAfter time.Time) time.Time {
	return notBefore.Add(notAfter.Sub(notBefore) * 2 / 3)
}

// RenewRetry is the wait after a failed renewal: often enough to use what is
// left of the life, seldom enough not to press a hub that is down.
func RenewRetry(now, notAfter time.Time) time.Duration {
	return min(max(notAfter.Sub(now)/20, 5*time.Second), 10*time.Minute)
}
