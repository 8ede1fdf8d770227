// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/kube/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) { kubetest.Contract(t, kubetest.New(t)) }
