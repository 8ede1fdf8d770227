// SPDX-License-Identifier: Apache-2.0

package system

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func httpGet(t *testing.T, url string) (int, string) {
	t.Helper()
	return httpDo(t, http.MethodGet, url, nil)
}

func httpDo(t *testing.T, method, url string, cfg *tls.Config) (int, string) {
	t.Helper()
	if cfg == nil {
		cfg = &tls.Config{InsecureSkipVerify: true}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: cfg}}
	req, err := http.NewRequestWithContext(runtest.Within(t), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func mustGather(t *testing.T, reg *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	out, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// family finds a metric by its name.
func family(t *testing.T, reg *prometheus.Registry, name string) *dto.MetricFamily {
	t.Helper()
	for _, m := range mustGather(t, reg) {
		if m.GetName() == name {
			return m
		}
	}
	return nil
}

// gauge gives the value of a gauge without labels.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	m := family(t, reg, name)
	if m == nil || len(m.GetMetric()) != 1 {
		t.Fatalf("%s: %v", name, m)
	}
	return m.GetMetric()[0].GetGauge().GetValue()
}
