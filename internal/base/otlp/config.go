// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"net/netip"
	"net/url"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Endpoint is the valid configuration of one signal. Without a URL it is disabled.
type Endpoint struct {
	URL         string
	CAFile      string
	HeadersFile string
	Timeout     time.Duration
}

// Config is a valid configuration.
type Config struct {
	Logs   Endpoint // of audit records
	Traces Endpoint
	Ratio  float64
}

// Configure validates the sections audit.otlp and tracing of a role's configuration. It
// reports each problem through add, with the path of the field.
func Configure(audit v1alpha1.AuditConfig, tracing v1alpha1.TracingConfig,
	add func(path, format string, args ...any)) Config {
	c := Config{
		Logs:   endpoint(audit.OTLP, "audit.otlp", "/v1/logs", add),
		Traces: endpoint(tracing.OTLPConfig, "tracing", "/v1/traces", add),
		Ratio:  1,
	}
	if tracing.Ratio != nil {
		c.Ratio = float64(*tracing.Ratio)
		if tracing.Endpoint == "" && tracing.OTLPConfig == (v1alpha1.OTLPConfig{}) {
			add("tracing.endpoint", "is missing, so nothing would be traced: name a collector, https://HOST:4318")
		}
	}
	return c
}

func endpoint(raw v1alpha1.OTLPConfig, at, path string, add func(path, format string, args ...any)) Endpoint {
	if raw == (v1alpha1.OTLPConfig{}) {
		return Endpoint{}
	}
	e := Endpoint{URL: raw.Endpoint, CAFile: raw.CAFile, HeadersFile: raw.HeadersFile, Timeout: raw.Timeout.Duration}
	u, err := url.Parse(raw.Endpoint)
	switch {
	case raw.Endpoint == "":
		add(at+".endpoint", "is missing, so nothing would be sent: name a collector, https://HOST:4318")
		return Endpoint{}
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		add(at+".endpoint", "it is not a URL such as https://collector.example:4318") // not quoted: it may hold a password
		return Endpoint{}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		add(at+".endpoint", "it has a user, a query or a fragment; secrets belong into headersFile")
		return Endpoint{}
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = path
	}
	e.URL = u.String()
	if u.Scheme == "http" && e.CAFile != "" {
		add(at+".caFile", "http is not encrypted and has no CA: write https")
	}
	if u.Scheme == "http" && e.HeadersFile != "" && !loopback(u.Hostname()) {
		add(at+".headersFile", "http would show the headers to everyone on the way: write https")
	}
	for field, file := range map[string]*string{"caFile": &e.CAFile, "headersFile": &e.HeadersFile} {
		if *file == "" {
			continue
		}
		if !filepath.IsAbs(*file) {
			add(at+"."+field, "%q is not absolute", *file)
		}
		*file = filepath.Clean(*file)
	}
	switch {
	case e.Timeout == 0:
		e.Timeout = limit.CollectorTimeout
	case e.Timeout < collectorTimeoutLeast || e.Timeout > collectorTimeoutMost:
		add(at+".timeout", "%v is not between %v and %v", e.Timeout, collectorTimeoutLeast, collectorTimeoutMost)
	}
	return e
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}
