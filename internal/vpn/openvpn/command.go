// SPDX-License-Identifier: Apache-2.0

package openvpn

import (
	"fmt"
	"strings"
)

// Begin are the commands that say what a process reports.
func Begin() []string {
	return []string{"log on", "state on", fmt.Sprintf("bytecount %d", TrafficSeconds)}
}

// Release ends a hold.
func Release() string { return "hold release" }

// AcceptRemote has a client dial the one of its remotes that it has reported.
func AcceptRemote() string { return "remote ACCEPT" }

// TrafficSeconds is how often a process counts bytes, in seconds.
const TrafficSeconds = 2

// Admit lets a client in.
func Admit(e ClientEvent, g Grant) string {
	return fmt.Sprintf("client-auth %d %d\n%s\nEND", e.Client, e.Key, strings.Join(g.Lines(), "\n"))
}

// Renew lets a client stay that has negotiated new keys.
func Renew(e ClientEvent) string { return fmt.Sprintf("client-auth-nt %d %d", e.Client, e.Key) }

// Refuse sends a client away. The reason is for the log of the process.
func Refuse(e ClientEvent, why string) string {
	return fmt.Sprintf("client-deny %d %d %q", e.Client, e.Key, why)
}

// Restart ends a client's connection, and has it come again.
func Restart(client int) string { return fmt.Sprintf("client-kill %d RESTART", client) }

// Halt ends a client's connection for good.
func Halt(client int) string { return fmt.Sprintf("client-kill %d HALT", client) }

// Ask wants any answer.
func Ask() string { return "pid" }

// Stop ends the process.
func Stop() string { return "signal SIGTERM" }

// CommonName is that of a client's certificate.
func (e ClientEvent) CommonName() string { return e.Env["common_name"] }

// From is where a client comes from, for people: a proxy's address if there is one in between.
func (e ClientEvent) From() string {
	if ip := e.Env["untrusted_ip"]; ip != "" {
		return ip + ":" + e.Env["untrusted_port"]
	}
	return e.Env["untrusted_ip6"]
}

// URI is the one name in a client's certificate, of a server that tracks names; empty: there is none, or several.
func (e ClientEvent) URI() string {
	uri, ok := strings.CutPrefix(e.Env["X509_0_subjectAltName"], "URI:")
	if !ok || strings.ContainsAny(uri, ", ") {
		return ""
	}
	return uri
}

// Version finds that of the program in what 'openvpn --version' prints, such as 2.6.14; ok: it is 2.6 or newer.
func Version(text string) (version string, ok bool) {
	rest, found := strings.CutPrefix(text, "OpenVPN ")
	if !found {
		return "", false
	}
	version, _, _ = strings.Cut(rest, " ")
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || err != nil {
		return "", false
	}
	return version, major > 2 || major == 2 && minor >= 6
}
