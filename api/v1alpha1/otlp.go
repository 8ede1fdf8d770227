// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strconv"
)

// OTLPConfig configures an OpenTelemetry collector, reached with OTLP over HTTP.
type OTLPConfig struct {
	// Endpoint is https://HOST[:PORT][/PATH], or http:// without encryption. Without
	// a path it is /v1/traces for traces and /v1/logs for audit records.
	Endpoint string `json:"endpoint,omitempty"`
	// CAFile holds the CAs of the collector's certificate, PEM. Default: the system's.
	CAFile string `json:"caFile,omitempty"`
	// HeadersFile holds further headers, one "Name: value" per line; it is read for each
	// request. Put secrets only there.
	HeadersFile string `json:"headersFile,omitempty"`
	// Timeout bounds one request. Default 10s.
	Timeout Duration `json:"timeout,omitempty"`
}

// TracingConfig configures where spans go, and which dials have spans.
type TracingConfig struct {
	OTLPConfig
	// Ratio is the share of dials with spans, 0 to 1, unless the caller has decided.
	// Default 1.
	Ratio *Ratio `json:"ratio,omitempty"`
}

// Ratio is a fraction from 0 to 1.
type Ratio float64

// UnmarshalText reads a decimal number.
func (r *Ratio) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("%q is not a ratio from 0 to 1, such as 0.01", text)
	}
	*r = Ratio(f)
	return nil
}

// MarshalText writes a decimal number.
func (r Ratio) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(r), 'f', -1, 64), nil
}
