// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strconv"
)

// OTLPConfig says how an OpenTelemetry collector is reached, by OTLP over HTTP.
type OTLPConfig struct {
	// Endpoint is https://HOST[:PORT][/PATH], or http:// without encryption. Without
	// a path it is /v1/traces for traces and /v1/logs for audit records.
	Endpoint string `json:"endpoint,omitempty"`
	// CAFile holds the CAs that vouch for the collector, PEM. Default: those of the system.
	CAFile string `json:"caFile,omitempty"`
	// HeadersFile holds further headers, "Name: value" in each line; it is read
	// for each request. Secrets belong there and nowhere else.
	HeadersFile string `json:"headersFile,omitempty"`
	// Timeout bounds one request. Default 10s.
	Timeout Duration `json:"timeout,omitempty"`
}

// TracingConfig says where spans go, and of which dials there are some.
type TracingConfig struct {
	OTLPConfig
	// Ratio of the dials of which spans are made, 0 to 1, where the caller has not
	// decided. Default 1.
	Ratio *Ratio `json:"ratio,omitempty"`
}

// Ratio is a part of a whole, 0 to 1.
type Ratio float64

// UnmarshalText reads a decimal number.
func (r *Ratio) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("%q is no ratio from 0 to 1, such as 0.01", text)
	}
	*r = Ratio(f)
	return nil
}

// MarshalText writes a decimal number.
func (r Ratio) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(r), 'f', -1, 64), nil
}
