// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// metrics are a node's, a line each.
type metrics []string

func (n *node) metrics() metrics {
	n.rig.t.Helper()
	m, err := n.scrape()
	if err != nil {
		n.rig.t.Fatal(err)
	}
	return m
}

func (n *node) scrape() (metrics, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: n.host.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:8448/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return slices.Collect(strings.Lines(string(text))), err
}

// sum adds up what a metric has, by all labels or with those that are given.
func (m metrics) sum(name string) (sum float64) {
	for _, line := range m {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			if value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64); err == nil {
				sum += value
			}
		}
	}
	return sum
}

// value is that of one series, written as it is there; -1 if there is none.
func (m metrics) value(series string) float64 {
	for _, line := range m {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			if value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); err == nil {
				return value
			}
		}
	}
	return -1
}
