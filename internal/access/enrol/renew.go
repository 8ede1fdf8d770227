// SPDX-License-Identifier: Apache-2.0

package enrol

import "time"

// RenewAt is the time at which to renew a certificate: two thirds of its lifetime.
func RenewAt(notBefore, notAfter time.Time) time.Time {
	return notBefore.Add(notAfter.Sub(notBefore) * 2 / 3)
}

// RenewRetry is the wait after a failed renewal: short enough to use the rest of the
// lifetime, long enough not to overload a hub that is down. It never sleeps through the
// end of a certificate that still holds.
func RenewRetry(now, notAfter time.Time) time.Duration {
	const least, most = 5 * time.Second, 10 * time.Minute
	left := notAfter.Sub(now)
	if left > 0 && left < 2*least {
		return max(left/4, 500*time.Millisecond)
	}
	return min(max(left/20, least), most)
}
