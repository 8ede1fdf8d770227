// SPDX-License-Identifier: Apache-2.0

//go:build counts

package tenantfile

import "testing"

func TestOneChangeOfAHundredThousandFiles(t *testing.T) { oneChange(t, 100_000) }
