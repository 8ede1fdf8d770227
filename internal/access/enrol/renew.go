// SPDX-License-Identifier: Apache-2.0

package enrol

import "time"

// RenewAt is the time at which to renew a certificate: two thirds of its lifetime.
func RenewAt(notBefore, notAfter time.Time) time.Time {
	return notBefore.Add(notAfter.Sub(notBefore) * 2 / 3)
}

// RenewRetry is the wait after a failed renewal: short enough to use the rest of the
// lifetime, long enough not to overload a hub that is down.
func RenewRetry(now, notAfter time.Time) time.Duration {
	return min(max(notAfter.Sub(now)/20, 5*time.Second), 10*time.Minute)
}
