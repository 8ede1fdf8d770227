// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
)

func TestTheKernelKeepsTheContract(t *testing.T) {
	kerneltest.Contract(t, func(t *testing.T) kerneltest.Subject { return alone(t) })
}
